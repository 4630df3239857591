package workspace

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// fold returns one spelling for all names that some file system of Linux takes for the same. It is coarser
// than any single one of them:
//   - ext4 and f2fs with case folding compare names in Unicode's NFD, without regard to case, and up to Linux 6.12
//     without code points that are ignored by default;
//   - vfat and NTFS ignore dots and blanks at the end, and NTFS what follows a colon.
//
// Short names of vfat and NTFS are not undone; gitShort is the one that matters.
func fold(name string) string {
	if ascii(name) {
		name = strings.ToLower(name)
	} else {
		name = norm.NFKD.String(cases.Fold().String(norm.NFKD.String(strings.Map(shown, name))))
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		part, _, _ = strings.Cut(part, ":")
		if trimmed := strings.TrimRight(part, ". "); trimmed != "" {
			part = trimmed
		}
		parts[i] = part
	}
	return strings.Join(parts, "/")
}

// gitShort is what vfat and NTFS call a folder .git in names of eight letters.
const gitShort = "git~1"

// shown drops the code points that are ignored by default.
func shown(r rune) rune {
	if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return -1
	}
	return r
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
