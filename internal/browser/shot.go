package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// Shot takes a picture of the window. It is also kept below the directory that CUSTODY_SHOTS names, if it
// does, as a PNG of 256 colours.
func (p *Page) Shot(name string) image.Image {
	p.t.Helper()
	raw := Run(p, chromedp.CaptureScreenshot())
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal("the picture:", err)
	}
	if dir := os.Getenv("CUSTODY_SHOTS"); dir != "" {
		if err := keep(img, filepath.Join(dir, name+".png")); err != nil {
			p.t.Fatal(err)
		}
	}
	return img
}

// Colours counts the pixels of each colour.
func Colours(img image.Image) map[color.RGBA]int {
	count := map[color.RGBA]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return count
}

// keep writes a picture with the colours that it has most of: a third of the size.
func keep(img image.Image, path string) error {
	count := Colours(img)
	often := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range often[:min(256, len(often))] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(img.Bounds(), palette)
	draw.Draw(small, small.Rect, img, img.Bounds().Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
