package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// operations is the page that describes the service.
const operations = "../docs/operations.md"

// units are the names of the units.
var units = []string{"custody-host.service", "custody-serve.service", "custody-template.service", "custody.socket"}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settings returns the words of all lines of a unit that set key.
func settings(t *testing.T, unit, key string) (words []string) {
	t.Helper()
	for line := range strings.Lines(read(t, unit)) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			words = append(words, strings.Fields(value)...)
		}
	}
	return words
}

func needSystemd(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatal("systemd is not installed: run `make test`, which installs it")
	}
}

// TestUnits: systemd accepts the units.
func TestUnits(t *testing.T) {
	needSystemd(t)
	// verify looks for the program and the manual page, which are not installed here.
	dir := t.TempDir()
	for _, name := range units {
		text := strings.ReplaceAll(read(t, name), "/usr/bin/custody", "/bin/true")
		text = strings.ReplaceAll(text, "Documentation=man:custody(1)\n", "")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range units {
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, name)).CombinedOutput()
		// It also reports other units of the machine.
		if err != nil || strings.Contains(string(out), dir) || regexp.MustCompile(`(?m)^custody`).Match(out) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestDriversLoaded: systemd ignores a driver in DeviceAllow= that is not loaded when the unit starts, so its module is loaded before.
func TestDriversLoaded(t *testing.T) {
	const unit = "custody-host.service"
	wants, after := settings(t, unit, "Wants"), settings(t, unit, "After")
	for _, word := range settings(t, unit, "DeviceAllow") {
		driver, ok := strings.CutPrefix(word, "block-")
		if !ok {
			continue
		}
		if load := "modprobe@" + driver + ".service"; !slices.Contains(wants, load) || !slices.Contains(after, load) {
			t.Errorf("DeviceAllow has %s: add %s to Wants= and After=", word, load)
		}
	}
}

// TestExposure: operations.md states the exposure level that `systemd-analyze security` computes.
func TestExposure(t *testing.T) {
	needSystemd(t)
	text := read(t, operations)
	stated := regexp.MustCompile(`of systemd ([0-9]+) \(.*\) and ([0-9]+) \(.*\) computes`).FindStringSubmatch(text)
	if stated == nil {
		t.Fatalf("%s does not name the versions of systemd", operations)
	}
	if installed := strings.Fields(output(t, exec.Command("systemd-analyze", "--version"))); len(installed) < 2 || !slices.Contains(stated[1:], installed[1]) {
		t.Skip("another version of systemd, which computes other levels")
	}
	for _, name := range units[:2] {
		out := output(t, exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "./"+name))
		level := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindStringSubmatch(out)
		if level == nil {
			t.Fatalf("no exposure level of %s: %s", name, out)
		}
		if !strings.Contains(text, "| `"+name+"` | "+level[1]+" |") {
			t.Errorf("the exposure level of %s is %s: correct the table in %s", name, level[1], operations)
		}
	}
}

// TestCapabilitiesDoc: operations.md has the reason for each capability of custody-host.service, and custody-serve.service has none.
func TestCapabilitiesDoc(t *testing.T) {
	var stated []string
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`CAP_[A-Z_]+`(?:, )?)+) \\|").FindAllStringSubmatch(read(t, operations), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			stated = append(stated, strings.Trim(name, "`"))
		}
	}
	given := settings(t, "custody-host.service", "CapabilityBoundingSet")
	slices.Sort(stated)
	slices.Sort(given)
	if !slices.Equal(stated, given) {
		t.Errorf("capabilities %v, %s states %v", given, operations, stated)
	}
	if none := settings(t, "custody-serve.service", "CapabilityBoundingSet"); len(none) != 0 {
		t.Errorf("custody-serve.service has %v", none)
	}
}

// TestCapabilitiesSuffice: a VM runs with the capabilities of custody-host.service and no others.
func TestCapabilitiesSuffice(t *testing.T) {
	templates := os.Getenv("CUSTODY_TEST_TEMPLATES")
	if templates == "" || os.Geteuid() != 0 {
		t.Fatal("this needs root and CUSTODY_TEST_TEMPLATES: run `make test`")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Symlink(templates, filepath.Join(home, "templates")); err != nil {
		t.Fatal(err)
	}
	set := "-all"
	for _, name := range settings(t, "custody-host.service", "CapabilityBoundingSet") {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	config := "version: 1\n"
	tiers := []string{"qemu-tcg"}
	if runsc := os.Getenv("CUSTODY_TEST_RUNSC"); runsc != "" {
		config += "isolation: {runsc: " + runsc + "}\n"
		tiers = append(tiers, "gvisor")
	}
	if err := os.WriteFile(filepath.Join(home, "host.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tier := range tiers {
		t.Run(tier, func(t *testing.T) {
			c := exec.Command("setpriv", "--no-new-privs", "--bounding-set", set, filepath.Join(dir, "custody"), "run", "-q", "--isolation", tier, "--", "echo", "hi")
			c.Env = append(os.Environ(), "CUSTODY_HOME="+home)
			if out := output(t, c); out != "hi\n" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// TestUserAndDirectories: systemd makes the user of the service, and directories that others can pass or not, as the service needs them.
func TestUserAndDirectories(t *testing.T) {
	needSystemd(t)
	if os.Geteuid() != 0 {
		t.Fatal("this needs root: run `make test`")
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"systemd-sysusers", "sysusers.conf"}, {"systemd-tmpfiles", "--create", "tmpfiles.conf"}} {
		file, err := filepath.Abs(c[len(c)-1])
		if err != nil {
			t.Fatal(err)
		}
		output(t, exec.Command(c[0], append(slices.Clone(c[1:len(c)-1]), "--root="+root, file)...))
	}
	groups := read(t, filepath.Join(root, "etc/group"))
	clients := regexp.MustCompile(`(?m)^custody:x:(\d+):$`).FindStringSubmatch(groups)
	group := regexp.MustCompile(`(?m)^custody-service:x:(\d+):$`).FindStringSubmatch(groups)
	if clients == nil || group == nil {
		t.Fatalf("a group is missing, or has members: %s", groups)
	}
	if users := read(t, filepath.Join(root, "etc/passwd")); !regexp.MustCompile(`(?m)^custody:x:\d+:` + group[1] + `:.*:/usr/sbin/nologin$`).MatchString(users) {
		t.Errorf("users: %s", users)
	}
	for dir, want := range map[string]string{"run/custody": "755 0 0", "var/lib/custody": "755 0 0", "var/lib/custody/host": "750 0 " + group[1]} {
		if got := strings.TrimSpace(output(t, exec.Command("stat", "-c", "%a %u %g", filepath.Join(root, dir)))); got != want {
			t.Errorf("%s has mode and owners %s, want %s", dir, got, want)
		}
	}
}
