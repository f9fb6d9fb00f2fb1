"""The program in a report: its nodes, the values between them, and its stages."""
