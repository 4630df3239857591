package pattern

import (
	"math/rand/v2"
	"regexp/syntax"
	"strings"
)

// sample returns a text that the expression matches, except for its assertions.
func sample(rng *rand.Rand, re *syntax.Regexp) string {
	var b strings.Builder
	write(rng, re, &b)
	return b.String()
}

func write(rng *rand.Rand, re *syntax.Regexp, b *strings.Builder) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if re.Flags&syntax.FoldCase != 0 && rng.IntN(2) == 0 {
				b.WriteString(strings.ToUpper(string(r)))
				continue
			}
			b.WriteRune(r)
		}
	case syntax.OpCharClass:
		b.WriteRune(member(rng, re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte(" ab:=\"'/.,"[rng.IntN(10)])
	case syntax.OpAlternate:
		write(rng, re.Sub[rng.IntN(len(re.Sub))], b)
	case syntax.OpStar:
		repeat(rng, re.Sub[0], 0, -1, b)
	case syntax.OpPlus:
		repeat(rng, re.Sub[0], 1, -1, b)
	case syntax.OpQuest:
		repeat(rng, re.Sub[0], 0, 1, b)
	case syntax.OpRepeat:
		repeat(rng, re.Sub[0], re.Min, re.Max, b)
	default:
		for _, sub := range re.Sub {
			write(rng, sub, b)
		}
	}
}

func repeat(rng *rand.Rand, re *syntax.Regexp, least, most int, b *strings.Builder) {
	if most < 0 || most > least+30 {
		most = least + 30
	}
	n := least
	if rng.IntN(3) > 0 {
		n += rng.IntN(most - least + 1)
	}
	for range n {
		write(rng, re, b)
	}
}

// member returns a rune of a class, preferably an ASCII one.
func member(rng *rand.Rand, ranges []rune) rune {
	var list []rune
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= min(ranges[i+1], 0x7e); r++ {
			list = append(list, r)
		}
	}
	if len(list) == 0 || rng.IntN(100) == 0 {
		i := 2 * rng.IntN(len(ranges)/2)
		return ranges[i]
	}
	return list[rng.IntN(len(list))]
}
