package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metafile is the part of esbuild's metafile that is used here.
type metafile struct {
	Outputs map[string]struct {
		EntryPoint string `json:"entryPoint"`
		Imports    []struct {
			Path string `json:"path"`
			Kind string `json:"kind"`
		} `json:"imports"`
		Inputs map[string]struct {
			BytesInOutput int `json:"bytesInOutput"`
		} `json:"inputs"`
	} `json:"outputs"`
}

// page fills the names of the assets into src/index.html. Assets of the first paint are
// preloaded; lazily imported ones are not.
func page(ui string, meta metafile) ([]byte, error) {
	template, err := os.ReadFile(filepath.Join(ui, "src/index.html"))
	if err != nil {
		return nil, err
	}
	var script, style, icon string
	var preload strings.Builder
	for _, name := range slices.Sorted(maps.Keys(meta.Outputs)) {
		output := meta.Outputs[name]
		path := strings.TrimPrefix(filepath.ToSlash(name), "out/")
		switch output.EntryPoint {
		case "src/main.tsx":
			script = path
			for _, i := range output.Imports {
				if i.Kind == "import-statement" {
					fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", strings.TrimPrefix(i.Path, "out/"))
				}
			}
		case "src/theme.css":
			style = path
		case "src/icon.svg":
			icon = path
		}
	}
	if script == "" || style == "" || icon == "" {
		return nil, fmt.Errorf("the build has no script (%q), no style (%q) or no icon (%q)", script, style, icon)
	}
	return []byte(strings.NewReplacer("{{script}}", script, "{{style}}", style, "{{icon}}", icon, "{{preload}}\n", preload.String()).Replace(string(template))), nil
}

// notice returns the licences of the packages whose code is in the assets. For a package
// published without its licence, the text is in licences/ under the package's name.
func notice(ui string, meta metafile) ([]byte, error) {
	packages := map[string]bool{}
	for _, output := range meta.Outputs {
		for input := range output.Inputs {
			if name := packageOf(input); name != "" {
				packages[name] = true
			}
		}
	}
	var b bytes.Buffer
	b.WriteString("The user interface of Custody is licensed as Custody is (Apache-2.0).\nIts assets contain code of the packages below.\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		text, err := os.ReadFile(filepath.Join(ui, "node_modules", name, "LICENSE"))
		if os.IsNotExist(err) {
			text, err = os.ReadFile(filepath.Join(ui, "licences", strings.ReplaceAll(name, "/", "__")+".txt"))
		}
		if err != nil {
			return nil, fmt.Errorf("the licence of %s: %w", name, err)
		}
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", name, strings.Repeat("-", len(name)), bytes.TrimSpace(text))
	}
	return b.Bytes(), nil
}

// packageOf returns the package that a module belongs to, "" for our own code.
func packageOf(input string) string {
	_, rest, found := strings.Cut(filepath.ToSlash(input), "node_modules/")
	if !found {
		return ""
	}
	parts := strings.SplitN(rest, "/", 3)
	if strings.HasPrefix(rest, "@") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}
