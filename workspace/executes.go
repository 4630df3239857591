package workspace

import (
	"path"
	"slices"
	"strings"
)

// Suffix is added to the name of a file that is not copied out under its own.
const Suffix = ".from-sandbox"

// Executes says why a file at this slash-separated path, relative to a directory of the host, would be executed there, or
// would decide what is, without a person who starts it; "" if nothing is known to do so. Letters
// are compared without regard to case, as some file systems do.
func Executes(name string) string {
	parts := strings.Split(strings.ToLower(path.Clean(name)), "/")
	for i, part := range parts {
		if part == ".git" {
			return git(parts[i+1:])
		}
		if why, ok := folders[part]; ok && i < len(parts)-1 {
			return why
		}
	}
	return files[parts[len(parts)-1]]
}

// files are names of files that a program of the host obeys wherever they are.
var files = map[string]string{
	"head":         "git takes its folder for a repository",
	"custody.yaml": "custody runs the commands that it names", ".custodyignore": "custody leaves out of a workspace what it names",
	".gitmodules": "git fetches and checks out what it names",
	".envrc":      "direnv executes it", ".env": "shells and tools load it", ".autoenv": "autoenv executes it", ".autoenv.zsh": "autoenv executes it",
	".mise.toml": "mise executes its hooks", "mise.toml": "mise executes its hooks", ".mise.local.toml": "mise executes its hooks", "mise.local.toml": "mise executes its hooks",
	".exrc": "vi executes it", ".vimrc": "vim executes it", ".nvimrc": "neovim executes it", ".nvim.lua": "neovim executes it",
	".dir-locals.el": "emacs executes it", ".dir-locals-2.el": "emacs executes it", ".gdbinit": "gdb executes it", ".lldbinit": "lldb executes it",
	".pre-commit-config.yaml": "pre-commit executes it at a commit", "lefthook.yml": "lefthook executes it at a commit", ".lefthook.yml": "lefthook executes it at a commit",
	".bashrc": "bash executes it", ".bash_profile": "bash executes it", ".bash_login": "bash executes it", ".bash_logout": "bash executes it", ".profile": "shells execute it", ".inputrc": "bash obeys it",
	".zshrc": "zsh executes it", ".zshenv": "zsh executes it", ".zprofile": "zsh executes it", ".zlogin": "zsh executes it", ".zlogout": "zsh executes it",
	".gitconfig": "git executes commands that it names",
}

// folders are names of folders all of whose files a program of the host obeys.
var folders = map[string]string{
	".vscode": "an editor runs its tasks", ".vscode-insiders": "an editor runs its tasks", ".idea": "an editor runs its configurations", ".fleet": "an editor runs its configurations",
	".zed": "an editor runs its tasks", ".devcontainer": "an editor runs its commands", ".vim": "vim executes it", ".nvim": "neovim executes it", ".sublime": "an editor runs its builds",
	".husky": "git runs its hooks", ".githooks": "git runs its hooks", ".direnv": "direnv executes it", ".mise": "mise executes its hooks",
	".claude": "an agent runs its hooks", ".cursor": "an agent runs its commands", ".gemini": "an agent runs its commands", ".codex": "an agent runs its commands",
	".ssh": "ssh runs commands that it names", ".config": "programs execute commands that it names",
}

// git says why a file in a repository's .git would be executed. Only what git itself writes as
// data is known not to be.
func git(rest []string) string {
	const why = "git executes it, or commands that it names"
	switch {
	case len(rest) == 0: // .git as a file or link: it leads to another repository
		return "it names the folder whose hooks and configuration git uses"
	case rest[0] == "modules" || rest[0] == "worktrees": // repositories with names of several parts
		last := rest[len(rest)-1]
		if slices.Contains(control, last) || slices.ContainsFunc(rest, func(s string) bool { return slices.Contains(controlFolders, s) }) {
			return why
		}
		return ""
	case len(rest) == 1 && (slices.Contains(gitFiles, rest[0]) || strings.HasSuffix(rest[0], "_head")):
		return ""
	case len(rest) == 2 && rest[0] == "hooks" && strings.HasSuffix(rest[1], ".sample"):
		return ""
	case len(rest) == 2 && rest[0] == "info" && slices.Contains([]string{"exclude", "refs", "sparse-checkout"}, rest[1]):
		return ""
	case len(rest) > 1 && slices.Contains([]string{"objects", "refs", "logs"}, rest[0]):
		return ""
	}
	return why
}

var (
	gitFiles       = []string{"head", "index", "packed-refs", "description", "shallow", "auto_merge", "commit_editmsg", "merge_msg", "squash_msg", "merge_mode", "gc.log"}
	control        = []string{"config", "config.worktree", "commondir", "gitdir", "attributes", ".git"}
	controlFolders = []string{"hooks", "rebase-merge", "rebase-apply", "sequencer"}
)
