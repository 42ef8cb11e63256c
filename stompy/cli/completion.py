"""`stompy completion`: a script with which a shell completes the command line."""

from __future__ import annotations

import argparse

from stompy.cli.console import say
from stompy.cli.exits import Exit
from stompy.cli.options import add_verbose

_BASH = """\
_stompy() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words="{commands}"
    if [ "$COMP_CWORD" -gt 1 ]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
            *) words="" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _stompy stompy"""

_ZSH = """\
#compdef stompy
autoload -U +X bashcompinit && bashcompinit
"""

_SHELLS = ("bash", "zsh", "fish")


def add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        description="Print a script that completes commands and options: add 'source <(stompy completion bash)' to "
        "~/.bashrc, the same with zsh to ~/.zshrc after compinit, or for fish save it as "
        "~/.config/fish/completions/stompy.fish.",
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell that reads it")
    add_verbose(parser)
    parser.set_defaults(run=run_completion)


def run_completion(arguments: argparse.Namespace) -> Exit:
    """Print the script."""
    from stompy.cli.main import build_parser  # which imports all commands

    words = build_parser().words()
    say({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](words))
    return Exit.OK


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'            {name}) words="{" ".join(given)}" ;;' for name, given in words.items())
    return _BASH.format(commands=" ".join([*words, "help", "--help", "--version"]), cases=cases)


def _zsh(words: dict[str, list[str]]) -> str:
    return _ZSH + _bash(words)


def _fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c stompy -n __fish_use_subcommand -f -a '{' '.join([*words, 'help'])}'"]
    for name, given in words.items():
        seen = f"complete -c stompy -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen} -l {each[2:]}" if each.startswith("--") else f"{seen} -a {each}" for each in given]
    return "\n".join(lines)
