package workspace

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// fold returns the same string for all names that some file system of Linux considers the same. It equates more
// names than any single file system:
//   - ext4 and f2fs with case folding compare names in Unicode's NFD, without regard to case, and up to Linux 6.12
//     without code points that are ignored by default;
//   - vfat and NTFS ignore dots and spaces at the end, and NTFS everything after a colon.
//
// Short names of vfat and NTFS are not expanded; only gitShort matters.
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

// gitShort is the short (8.3) name that vfat and NTFS give a directory .git.
const gitShort = "git~1"

// shown returns -1, which removes the rune, for code points that are ignored by default.
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
