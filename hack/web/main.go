// Command web bundles the sources of the user interface (replay/web/ui) into the assets
// that replay/web embeds, with esbuild. The same sources give the same bytes.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	ui := flag.String("ui", "", "directory of the sources, with node_modules")
	out := flag.String("out", "", "directory for the assets; what it held is removed")
	tests := flag.String("tests", "", "directory for the bundled *.test.ts files instead of the assets")
	checker := flag.String("checker", "", "file for the page's checker of evidence, for node, instead of the assets")
	flag.Parse()
	if err := run(*ui, *out, *tests, *checker); err != nil {
		fmt.Fprintf(os.Stderr, "web: %v\n", err)
		os.Exit(1)
	}
}

func run(ui, out, tests, checker string) error {
	asked := slices.DeleteFunc([]string{out, tests, checker}, func(s string) bool { return s == "" })
	if ui == "" || len(asked) != 1 {
		return errors.New("give -ui and one of -out, -tests and -checker")
	}
	ui, err := filepath.Abs(ui)
	if err != nil {
		return err
	}
	if tests != "" {
		return bundleTests(ui, tests)
	}
	if checker != "" {
		return bundleChecker(ui, checker)
	}
	return bundle(ui, out)
}

// bundle writes index.html, the hashed assets and the notice of licences.
func bundle(ui, out string) error {
	result, err := build(api.BuildOptions{
		AbsWorkingDir: ui,
		EntryPointsAdvanced: []api.EntryPoint{
			{InputPath: "src/main.tsx", OutputPath: "main"},
			{InputPath: "src/theme.css", OutputPath: "theme"},
			{InputPath: "src/icon.svg", OutputPath: "icon"},
		},
		Outdir:            filepath.Join(ui, "out"), // nothing is written there
		EntryNames:        "assets/[name]-[hash]",
		ChunkNames:        "assets/[name]-[hash]",
		AssetNames:        "assets/[name]-[hash]",
		Format:            api.FormatESModule,
		Platform:          api.PlatformBrowser,
		Target:            api.ES2022,
		Splitting:         true,
		MinifySyntax:      true,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		LegalComments:     api.LegalCommentsNone, // NOTICE.txt has them
		Charset:           api.CharsetASCII,
		Loader:            map[string]api.Loader{".svg": api.LoaderCopy},
		Define:            map[string]string{"process.env.NODE_ENV": `"production"`},
		Metafile:          true,
		Write:             false,
	})
	if err != nil {
		return err
	}
	var meta metafile
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return fmt.Errorf("read esbuild's metafile: %w", err)
	}
	files := map[string][]byte{}
	for _, f := range result.OutputFiles {
		rel, err := filepath.Rel(filepath.Join(ui, "out"), f.Path)
		if err != nil {
			return err
		}
		files[rel] = f.Contents
	}
	if files["index.html"], err = page(ui, meta); err != nil {
		return err
	}
	if files["NOTICE.txt"], err = notice(ui, meta); err != nil {
		return err
	}
	return write(out, files)
}

// bundleTests writes one module for each test that needs no browser, for node to run.
func bundleTests(ui, out string) error {
	var entries []string
	err := filepath.WalkDir(filepath.Join(ui, "src"), func(path string, d os.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, ".test.ts") || strings.HasSuffix(path, ".test.tsx")) {
			entries = append(entries, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = build(api.BuildOptions{
		AbsWorkingDir: ui,
		EntryPoints:   entries,
		Outdir:        out,
		OutExtension:  map[string]string{".js": ".mjs"},
		Format:        api.FormatESModule,
		Platform:      api.PlatformNode,
		Target:        api.ES2022,
		Write:         true,
	})
	return err
}

// bundleChecker writes the page's checker as a module that answers lines of arguments, for the tests in docs.
func bundleChecker(ui, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	_, err = build(api.BuildOptions{
		AbsWorkingDir: ui,
		EntryPoints:   []string{"src/proof/driver.ts"},
		Outfile:       out,
		Format:        api.FormatESModule,
		Platform:      api.PlatformNode,
		Target:        api.ES2022,
		Charset:       api.CharsetASCII,
		Write:         true,
	})
	return err
}

func build(options api.BuildOptions) (api.BuildResult, error) {
	options.Bundle = true
	options.JSX = api.JSXAutomatic
	options.JSXImportSource = "preact"
	// The package.json of @xterm/headless names a file that the package does not contain.
	options.Alias = map[string]string{"@xterm/headless": "@xterm/headless/lib-headless/xterm-headless.mjs"}
	options.LogLevel = api.LogLevelSilent
	result := api.Build(options)
	messages := append(result.Errors, result.Warnings...)
	if len(messages) == 0 {
		return result, nil
	}
	lines := api.FormatMessages(messages, api.FormatMessagesOptions{})
	return result, errors.New("esbuild:\n" + strings.Join(lines, ""))
}

// write replaces the content of out. A file with the same content is not written again.
func write(out string, files map[string][]byte) error {
	if err := os.MkdirAll(filepath.Join(out, "assets"), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"", "assets"} {
		entries, err := os.ReadDir(filepath.Join(out, dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			rel := filepath.Join(dir, e.Name())
			if _, wanted := files[rel]; wanted || e.IsDir() {
				continue
			}
			if err := os.Remove(filepath.Join(out, rel)); err != nil {
				return err
			}
		}
	}
	for rel, body := range files {
		path := filepath.Join(out, rel)
		if old, err := os.ReadFile(path); err == nil && slices.Equal(old, body) {
			continue
		}
		if err := os.WriteFile(path, body, 0o644); err != nil {
			return err
		}
	}
	return nil
}
