package replay

// Visible returns text as it can be shown to a person anywhere: each character that would not
// be seen as itself (controls, escapes, bidirectional overrides, zero-width and odd spaces,
// bytes that are not UTF-8) is written \n, \xNN or \u{NNNN}. It does not escape markup.
func Visible(text string) string { return escape(text) }
