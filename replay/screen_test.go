package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestScreen: what a terminal shows after all that; xterm was asked in doubt.
func TestScreen(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", ""},
		{"a\r\nb\r\n", "a|b"},
		{"10%\r20%\r100%", "100%"},
		{"downloading\r\x1b[Kdone\n", "done"},
		{"ab\bc", "ac"},
		{"a\tb", "a       b"},
		{"\x1b[31mred\x1b[0m", "red"},
		{"\x1b]0;a title\x07text", "text"},
		{"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"\x1bP+q544e\x1b\\text", "text"},
		{"one\r\ntwo\r\n\x1b[2A\x1b[2Kzero", "zero|two"},
		{"one\r\ntwo\x1b[1;1Hzero", "zero|two"},
		{"\x1b[5;3Hx", "||||  x"},
		{"abc\x1b[2D\x1b[Kx", "ax"},
		{"abc\x1b[1Gx", "xbc"},
		{"abc\x1b[2Px\x1b[2G\x1b[1Py", "ayx"},
		{"abc\x1b[1G\x1b[2X", "  c"},
		{"junk\r\nmore\x1b[2J\x1b[Hclean", "clean"},
		{"shell\r\n\x1b[?1049h\x1b[Heditor\x1b[?1049lback", "shell|back"},
		{"a\x1b7bcd\x1b8x", "axcd"},
		{"\x9b31mx\u009b31my", "\ufffd31mxy"},
		{"\x1b[999999999999999999999999;5Hx", ""},
		{"\x1b[38;2;1;2;3mx", "x"},
		{"\xff\x00\x07\x7fx", "\ufffdx"},
		{"日本語\r日", "日本語"},
		{"\x1b[?25lx\x1b[?25h", "x"},
		{"\x1b(Bx\x1b=y", "xy"},
		{"\x1b[1\x1b[31mx", "x"},
		{"\x1b[", ""},
	} {
		got := strings.Join(screenOf(tc.text, 100), "|")
		if strings.Contains(tc.text, "99999999") {
			if got != "" && !strings.HasSuffix(got, "    x") {
				t.Errorf("%q: got %q", tc.text, got)
			}
			continue
		}
		if got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestTerminalTail(t *testing.T) {
	tl := newTail(3)
	add := func(step, stream, text string) { tl.add(step, &audit.Output{Stream: stream, Text: audit.Text(text)}) }
	add("a", "stdout", "first\n")
	add("a", "tty", "\x1b[?1049hin the editor")
	add("b", "tty", "$ ls\r\nx 10%")
	add("b", "tty", "\rx 99%")
	if got := fmt.Sprint(tl.last()); got != "[{tty } {tty $ ls} {tty x 99%}]" {
		t.Errorf("got %s", got)
	}
	add("c", "stderr", "late")
	if got := fmt.Sprint(tl.last()); got != "[{tty x 99%} {stdout first} {stderr late}]" {
		t.Errorf("with a pipe's line behind: %s", got)
	}
}

// FuzzScreen: no text makes a screen large, slow, or show what steers a terminal.
func FuzzScreen(f *testing.F) {
	for _, seed := range []string{"a\r\nb", "\x1b[2J\x1b[1;1Hx", "\x1b[?1049hx\x1b[?1049l", "\x1b]0;x\x07", "\x1b[9999;9999Hx", "\x1b[9999P", "\x1bM\x1bM", "\u009b5A"} {
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, times uint8) {
		s := newScreen()
		for range int(times) + 1 {
			s.write(text)
		}
		if len(s.lines) > 3*screenRows || s.row >= len(s.lines) || s.row < 0 || s.col < 0 || s.top < 0 {
			t.Fatalf("%d lines, row %d, column %d, top %d", len(s.lines), s.row, s.col, s.top)
		}
		for _, line := range s.last(50) {
			if len([]rune(line)) > screenColumns || strings.ContainsFunc(line, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) {
				t.Fatalf("it shows %q", line)
			}
		}
	})
}
