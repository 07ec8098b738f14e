"""`yunishard completion SHELL`: completion scripts, derived from the argparse tree so that they cannot lie.

What an option takes is read off its metavar: FILE and DIR complete paths, `a|b|c` completes these words, `a|N|FILE`
both; other words in capitals stand for what cannot be known. The scripts are static: completing starts no process.

Not here: the commands themselves.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from yunishard.cli import COMMANDS, PROGRAM, parser_of

ABOUT: Final = """\
Print a completion script.

  bash   source <(yunishard completion bash)                      in ~/.bashrc
  zsh    source <(yunishard completion zsh)         in ~/.zshrc, after compinit
  fish   yunishard completion fish > ~/.config/fish/completions/yunishard.fish"""


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or a positional argument, which has no flags."""

    flags: tuple[str, ...]
    about: str
    metavar: str
    takes: Literal["nothing", "text", "word", "file", "folder", "word or file"]
    words: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = ABOUT
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def main(args: argparse.Namespace) -> int:
    """Print the script."""
    script = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell]
    sys.stdout.write("\n".join(script(tree(parser_of(COMMANDS)))) + "\n")
    return 0


# The tree -------------------------------------------------------------------------------------------------------------

Tree = dict[str, list[Argument]]
"""Arguments by command; those of the program itself under the empty name, those of an action as `config get`."""


def tree(parser: argparse.ArgumentParser) -> Tree:
    """All commands and their arguments. argparse shows its tree only to those who look at its private fields."""
    found: Tree = {}
    _grow(found, "", parser)
    return found


def _grow(found: Tree, name: str, parser: argparse.ArgumentParser) -> None:
    found[name] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, own in action.choices.items():
                _grow(found, f"{name} {word}".strip(), own)
        else:
            found[name].append(_argument(action))


def _below(commands: Tree, name: str) -> list[str]:
    """The words that may follow a command, or the program: its actions, or all commands."""
    return [other.rpartition(" ")[2] for other in commands if other and other.rpartition(" ")[0] == name]


def _argument(action: argparse.Action) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    parts = metavar.split("|")
    words = tuple(str(choice) for choice in action.choices or (part for part in parts[1:] and parts if part.islower()))
    about = " ".join((action.help or "").replace("%%", "%").split())
    if action.nargs == 0:
        return Argument(tuple(action.option_strings), about, metavar, "nothing")
    if words:
        takes: Literal["word", "word or file"] = "word or file" if "FILE" in parts else "word"
        return Argument(tuple(action.option_strings), about, metavar, takes, words)
    kind: Literal["file", "folder", "text"] = "file" if "FILE" in parts else "folder" if metavar == "DIR" else "text"
    return Argument(tuple(action.option_strings), about, metavar, kind)


# bash: written for 3.2, which macOS still has -------------------------------------------------------------------------


def bash(commands: Tree) -> Iterator[str]:
    """Yield the lines of the script for bash."""
    names = "|".join(f'"{name}"' for name in commands if name)
    yield f"_{PROGRAM}() {{"
    yield "    local IFS=$'\\n' word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i"
    yield "    if [[ $word == = ]]; then word="  # bash splits --option=value into three
    yield "    elif [[ $before == = ]] && ((COMP_CWORD > 1)); then before=${COMP_WORDS[COMP_CWORD-2]}; fi"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case "$command${command:+ }${COMP_WORDS[i]}" in'
    yield f'            {names}) command="$command${{command:+ }}${{COMP_WORDS[i]}}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command $before" in'
    for name, arguments in commands.items():
        for argument in arguments:
            if argument.flags and argument.takes != "nothing":
                patterns = "|".join(f'"{name} {flag}"' for flag in argument.flags)
                yield f"        {patterns}) COMPREPLY=({_bash_words(argument)}); return ;;"
    yield "    esac"
    yield '    case "$command" in'
    for name, arguments in commands.items():
        flags = [flag for argument in arguments for flag in argument.flags]
        own = Argument((), "", "", "word", (*flags, *_below(commands, name)))
        parts = " ".join(filter(None, map(_bash_words, [own, *(one for one in arguments if not one.flags)])))
        yield f'        "{name}") COMPREPLY=({parts}) ;;'
    yield "    esac"
    yield "}"
    yield f"complete -o filenames -F _{PROGRAM} {PROGRAM}"


def _bash_words(argument: Argument) -> str:
    match argument.takes:
        case "word":
            return f"$(compgen -W $'{_NEWLINE.join(argument.words)}' -- \"$word\")"
        case "word or file":
            return f"{_bash_words(replace(argument, takes='word'))} {_bash_words(replace(argument, takes='file'))}"
        case "file":
            return '$(compgen -f -- "$word")'
        case "folder":
            return '$(compgen -d -- "$word")'
        case _:
            return ""


_NEWLINE: Final = "\\n"

# zsh ------------------------------------------------------------------------------------------------------------------


def zsh(commands: Tree) -> Iterator[str]:
    """Yield the lines of the script for zsh, to be sourced or put into a folder of $fpath."""
    yield f"#compdef {PROGRAM}"
    yield f"_{PROGRAM}() {{"
    yield "    local context state line"
    yield "    local -a commands"
    yield "    commands=("
    for name in _below(commands, ""):
        yield f"        {_quoted(name + ':' + COMMANDS[name].about)}"
    yield "    )"
    yield f"    _arguments -C {' '.join(map(_zsh_spec, commands['']))} '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command) _describe command commands ;;"
    yield "        argument) case $words[1] in"
    for name in _below(commands, ""):
        specs = " ".join(map(_zsh_spec, commands[name]))
        actions = _below(commands, name)
        if not actions:
            yield f"            {name}) _arguments {specs} ;;"
            continue
        yield f"            {name}) _arguments -C {specs} '1:action:({' '.join(actions)})' '*::argument:->action'"
        yield "                case $state in action) case $words[1] in"
        for action in actions:
            specs = " ".join(map(_zsh_spec, commands[f"{name} {action}"]))
            yield f"                    {action}) _arguments {specs} ;;"
        yield "                esac ;; esac ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    yield f'if [[ $funcstack[1] == _{PROGRAM} ]]; then _{PROGRAM} "$@"; else compdef _{PROGRAM} {PROGRAM}; fi'


def _zsh_spec(argument: Argument) -> str:
    words = " ".join(argument.words)
    either = _zsh_text(f'_alternative "words:word:({words})" "files:file:_files"')
    takes = {"word": f"({words})", "file": "_files", "folder": "_files -/", "word or file": either}.get(
        argument.takes, " "
    )
    value = f":{_zsh_text(argument.metavar)}:{takes}"
    if not argument.flags:
        return _quoted(value)
    about = f"[{_zsh_text(argument.about)}]"
    return " ".join(
        _quoted(f"{flag}{about}" if argument.takes == "nothing" else f"{flag}={about}{value}")
        for flag in argument.flags
    )


def _zsh_text(text: str) -> str:
    for special in "\\[]:":
        text = text.replace(special, f"\\{special}")
    return text


# fish -----------------------------------------------------------------------------------------------------------------


def fish(commands: Tree) -> Iterator[str]:
    """Yield the lines of the script for fish."""
    yield f"complete -c {PROGRAM} -f"
    for name, arguments in commands.items():
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        here = f"-n {_fish_quoted(condition or '__fish_use_subcommand')}"
        actions = _below(commands, name)
        if name in COMMANDS:
            about = _fish_quoted(COMMANDS[name].about)
            yield f"complete -c {PROGRAM} -n __fish_use_subcommand -a {name} -d {about}"
        if name and actions:
            words = " ".join(actions)
            before = _fish_quoted(f"{condition}; and not __fish_seen_subcommand_from {words}")
            yield f"complete -c {PROGRAM} -n {before} -a {_fish_quoted(words)}"
        for argument in arguments:
            flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags]
            parts = [f"complete -c {PROGRAM}", here, *flags, _fish_takes(argument)]
            if flags:
                parts.append(f"-d {_fish_quoted(argument.about)}")
            yield " ".join(filter(None, parts))


def _fish_takes(argument: Argument) -> str:
    match argument.takes:
        case "nothing":
            return ""
        case "word":
            return f"-x -a {_fish_quoted(' '.join(argument.words))}"
        case "file":
            return "-r -F" if argument.flags else "-F"
        case "word or file":
            return f"{'-r -F' if argument.flags else '-F'} -a {_fish_quoted(' '.join(argument.words))}"
        case "folder":
            return "-x -a '(__fish_complete_directories)'"
        case "text":
            return "-x"


def _quoted(text: str) -> str:
    """In single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
