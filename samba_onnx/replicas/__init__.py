"""The replicas that train one PEF together: how they meet, watch each other, and end."""
