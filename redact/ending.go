package redact

// hasTail reports whether digits, padding or blanks of the value may follow.
func (c *candidate) hasTail() bool {
	return c.half || c.lastWord || c.form.outer == rows && c.form.outerOff != rowBare || c.trail > 0 || c.form.outer.padded() || c.form.inner.padded()
}

// padded reports whether k is base64 or base32.
func (k kind) padded() bool { _, group := k.bits(); return group > 1 }

// tail processes b after the match and reports whether more can follow.
func (c *candidate) tail(b byte) bool {
	if c.half {
		return c.otherHalf(b)
	}
	if c.form.outer == rows {
		return c.restOfRow(b)
	}
	if c.form.outer.padded() && !c.loose && (b == '=' || isBlank(b)) {
		if b == '=' {
			c.end = c.at
		}
		return true
	}
	var out units
	if !c.outer.push(unit(b), &out) {
		return false
	}
	c.loose = true
	for _, u := range out.list[:out.n] {
		if !c.after(u) {
			return false
		}
	}
	return c.hasTail()
}

// after is tail for a unit that outer has decoded.
func (c *candidate) after(u unit) bool {
	b, ok := byteOf(u)
	switch {
	case !ok:
		return false
	case c.lastWord:
		return c.word(b)
	case b == '=' && c.form.inner.padded() && !c.stray, c.spare > 0 && isDigit(b):
		c.spare = 0
		c.end, c.loose = c.at, false
		return true
	case c.form.inner == b64 || c.form.inner == lit || isBlank(b) && c.trail == 0:
		return isBlank(b)
	}
	c.stray = true
	var out units
	if !c.inner.push(u, &out) {
		return false
	}
	for _, u := range out.list[:out.n] {
		if b, ok := byteOf(u); !ok || !isBlank(b) || c.trail == 0 {
			return ok && isBlank(b)
		}
		c.trail--
		c.end, c.loose, c.stray = c.at, false, false
	}
	return true
}

// word processes b in or before the word with the value's last bytes, and reports whether more of it can follow.
func (c *candidate) word(b byte) bool {
	switch {
	case nibble(b) < 16 || b == '-':
		c.inWord, c.end = true, c.at
	case c.inWord && isBlank(b):
		c.lastWord = false
	default:
		return isBlank(b)
	}
	return c.hasTail()
}

// restOfRow processes b after the value in a dump. The text at the row's end may be the value's, in a form that no other
// rule finds.
func (c *candidate) restOfRow(b byte) bool {
	var out units
	if b == '\n' && (!c.lastWord || c.inWord) || !c.outer.push(unit(b), &out) {
		return false
	}
	if c.outer.state&rowText != 0 {
		c.end = c.at
		return true
	}
	if c.lastWord && out.n > 0 {
		return c.word(b)
	}
	return isBlank(b) || nibble(b) < 16 || c.outer.state&rowHead != 0 || b == ':'
}
