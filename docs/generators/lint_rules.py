"""The page of the rules of ``samba-port lint``: ``python -m docs.generators.lint_rules`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from samba_onnx.tools.lint.findings import LintRule
from samba_onnx.tools.lint.rule_table import RULES

PAGE = Path(__file__).parents[1] / "lint.md"

_HEADER = """\
# What hurts on an RDU

`samba-port lint` reads programs and modules, for SambaFlow or plain PyTorch, and says before they run what in them will hurt: file,
line, why, and what to write instead. Nothing is imported or executed.

```
samba-port lint train.py
samba-port lint train.py models/ --target sn30 --fail-on warning
```

| severity | meaning |
|---|---|
| error | the program is refused, or computes something else than was written |
| warning | the program does not do all that it says, or loses speed that it need not lose |
| note | the program works; on an RDU there is a better way |

The exit status is 1 if anything of severity `error` is found, or as bad as `--fail-on` says. A comment leaves a rule out on its
line: `# samba-port: ignore[item-per-step]`, or `# samba-port: ignore` for all rules.

Traced is every `forward` with what it calls in the same file. A parameter is a tensor by its annotation, or because `forward` uses
it as one; shapes, types and flags are no values. What cannot be told from the text is not found.

`python -m docs.generators.lint_rules` writes this page.

| rule | severity | what it finds |
|---|---|---|
"""


def rules_page() -> str:
    """Return the page."""
    ordered = sorted(RULES.values(), key=lambda rule: rule.severity.rank)
    rows = (
        f"| [`{rule.id}`](#{rule.id}) | {rule.severity.value} | {rule.title} |\n"
        for rule in ordered
    )
    return _HEADER + "".join(rows) + "".join(_section(rule) for rule in ordered)


def _section(rule: LintRule) -> str:
    target = f" Only for `--target {rule.target}`." if rule.target else ""
    return f"""
## {rule.id}

{rule.title}. {rule.why}{target}

*Instead.* {rule.instead}

*Known from.* {rule.source}.

```py
{rule.example.strip()}
```

Better:

```py
{rule.better.strip()}
```
"""


if __name__ == "__main__":
    PAGE.write_text(rules_page(), encoding="utf-8")
