package workspace

import (
	"path"
	"slices"
	"strings"
)

// Suffix is added to the name of a file that is not copied out under its own name.
const Suffix = ".from-sandbox"

// Executes returns the reason why a program of the host would execute a file at this path, or commands named in it, although
// no person starts it; "" if no such program is known. The path is relative to a directory of the host, with slashes.
// Executes treats spellings that some file system considers the same name as the same.
func Executes(name string) string {
	parts := strings.Split(fold(path.Clean(name)), "/")
	for i, part := range parts {
		switch rest := parts[i+1:]; {
		case part == ".git" || part == gitShort:
			return git(rest)
		case part == ".hg":
			return mercurial(rest)
		case len(rest) > 0 && folders[part] != "":
			return folders[part]
		}
	}
	return file(parts[len(parts)-1])
}

// file returns why a file of this name would be executed in any directory.
func file(base string) string {
	if why, ok := files[base]; ok {
		return why
	}
	for pattern, why := range patterns {
		if ok, _ := path.Match(pattern, base); ok {
			return why
		}
	}
	return ""
}

// files are names of files that a program of the host executes or follows in any directory, with the reason.
var files = map[string]string{
	"head":         "git takes its folder for a repository",
	"custody.yaml": "custody runs the commands that it names", ".custodyignore": "custody leaves out of a workspace what it names",
	".gitmodules": "git fetches and checks out what it names",
	".hgsub":      "mercurial fetches and checks out what it names",
	".env":        "shells and tools load it", ".env.leave": "autoenv executes it", ".autoenv": "autoenv executes it", ".autoenv.zsh": "autoenv executes it", ".autoenv.leave": "autoenv executes it", ".autoenv_leave.zsh": "autoenv executes it",
	"shell.nix": "direnv runs its hooks", "flake.nix": "direnv runs its hooks", "default.nix": "direnv runs its hooks", "devenv.nix": "direnv runs its hooks",
	".rtx.toml": "mise executes its hooks", ".sdkmanrc": "sdkman obeys it",
	".exrc": "vi executes it", ".vimrc": "vim executes it", ".nvimrc": "neovim executes it", ".nvim.lua": "neovim executes it",
	".dir-locals.el": "emacs executes it", ".dir-locals-2.el": "emacs executes it", ".gdbinit": "gdb executes it", ".lldbinit": "lldb executes it",
	".lvimrc": "vim executes it", "_vimrc": "vim executes it", ".emacs": "emacs executes it", ".emacs.desktop": "emacs executes it",
	".ghci": "ghci executes it", ".ocamlinit": "ocaml executes it", ".rprofile": "R executes it", ".renviron": "R obeys it", ".octaverc": "octave executes it", ".irbrc": "irb executes it", ".pryrc": "pry executes it",
	".psqlrc": "psql executes it", ".sqliterc": "sqlite3 executes it", ".tmux.conf": "tmux executes it", ".lessfilter": "less executes it", ".lesskey": "less obeys it",
	".xinitrc": "X executes it", ".xsession": "X executes it", ".xsessionrc": "X executes it", ".xprofile": "X executes it", ".pam_environment": "a login obeys it",
	".forward": "mail is given to what it names", ".procmailrc": "mail is given to what it names", ".mailcap": "mail readers execute what it names",
	".pre-commit-config.yaml": "pre-commit executes it at a commit", ".overcommit.yml": "overcommit executes it at a commit", ".huskyrc": "git runs it with its hooks",
	".mcp.json": "an agent starts the servers that it names", "opencode.json": "an agent starts the servers that it names", ".crush.json": "an agent starts the servers that it names", "crush.json": "an agent starts the servers that it names",
	".aider.conf.yml": "an agent runs its commands",
	".bashrc":         "bash executes it", ".bash_profile": "bash executes it", ".bash_login": "bash executes it", ".bash_logout": "bash executes it", ".profile": "shells execute it", ".inputrc": "bash obeys it",
	".zshrc": "zsh executes it", ".zshenv": "zsh executes it", ".zprofile": "zsh executes it", ".zlogin": "zsh executes it", ".zlogout": "zsh executes it",
	".gitconfig": "git executes commands that it names",
}

// patterns are patterns of such names, with the syntax of path.Match.
var patterns = map[string]string{
	".envrc*":   "direnv executes it",
	"mise.toml": "mise executes its hooks", "mise.*.toml": "mise executes its hooks", ".mise.toml": "mise executes its hooks", ".mise.*.toml": "mise executes its hooks",
	"lefthook*": "lefthook executes it at a commit", ".lefthook*": "lefthook executes it at a commit",
	"*.code-workspace": "an editor runs its tasks",
}

// folders are names of directories whose files a program of the host executes or follows.
var folders = map[string]string{
	".vscode": "an editor runs its tasks", ".vscode-insiders": "an editor runs its tasks", ".idea": "an editor runs its configurations", ".fleet": "an editor runs its configurations",
	".zed": "an editor runs its tasks", ".devcontainer": "an editor runs its commands", ".vim": "vim executes it", ".nvim": "neovim executes it", ".sublime": "an editor runs its builds",
	".helix": "an editor runs its commands", ".theia": "an editor runs its tasks", ".nova": "an editor runs its tasks", ".emacs.d": "emacs executes it", ".ropeproject": "an editor executes it",
	".windsurf": "an agent runs its commands", ".continue": "an agent runs its commands", ".roo": "an agent runs its commands", ".kiro": "an agent runs its hooks", ".opencode": "an agent executes it", ".amazonq": "an agent runs its commands", ".qwen": "an agent runs its commands", ".crush": "an agent runs its commands",
	".jj": "jujutsu runs commands that it names", ".bzr": "breezy runs commands that it names", ".svn": "subversion obeys it", "_darcs": "darcs runs commands that it names",
	".lefthook": "lefthook executes it at a commit", ".git-hooks": "git runs its hooks", ".aws": "programs execute commands that it names", ".kube": "programs execute commands that it names", ".docker": "programs execute commands that it names", ".gnupg": "gpg executes programs that it names",
	".local": "programs start what is in it", ".ipython": "ipython executes it", ".julia": "julia executes it",
	".husky": "git runs its hooks", ".githooks": "git runs its hooks", ".direnv": "direnv executes it", ".mise": "mise executes its hooks",
	".claude": "an agent runs its hooks", ".cursor": "an agent runs its commands", ".gemini": "an agent runs its commands", ".codex": "an agent runs its commands",
	".ssh": "ssh runs commands that it names", ".config": "programs execute commands that it names",
}

// git returns why a file in a repository's .git would be executed. It returns "" only for files that git
// writes as data.
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

// mercurial returns why a file in a repository's .hg would be executed. It returns "" only for files that mercurial
// writes as data.
func mercurial(rest []string) string {
	switch {
	case len(rest) == 1 && slices.Contains(hgFiles, rest[0]):
		return ""
	case len(rest) > 1 && slices.Contains([]string{"store", "cache", "wcache"}, rest[0]) && !slices.Contains(rest, "hgrc"):
		return ""
	}
	return "mercurial executes commands that it names"
}

var hgFiles = []string{"00changelog.i", "branch", "bookmarks", "bookmarks.current", "dirstate", "last-message.txt", "requires"}

var (
	gitFiles       = []string{"head", "index", "packed-refs", "description", "shallow", "auto_merge", "commit_editmsg", "merge_msg", "squash_msg", "merge_mode", "gc.log"}
	control        = []string{"config", "config.worktree", "commondir", "gitdir", "attributes", ".git"}
	controlFolders = []string{"hooks", "rebase-merge", "rebase-apply", "sequencer"}
)
