package main

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"path/filepath"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	xdraw "golang.org/x/image/draw"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// contactSheet is a table of pictures. It has a row per image: first the image as stored, then its
// result in each epoch. If a transform crops the image as stored, the crop is outlined there in the
// colour of its epoch.
type contactSheet struct {
	opts transformOptions
	rows []*sheetRow
	face font.Face
}

type sheetRow struct {
	path    string
	stored  image.Image
	failure string
	cells   []image.Image
	parts   []image.Rectangle // crops, one per cell; empty: unknown
}

// The sheet's dimensions, in pixels, and the limit on its rows. If there are more images, a note on
// the sheet reports it.
const (
	sheetCell   = 200
	sheetGap    = 12
	sheetLine   = 18
	sheetFont   = 13
	sheetMargin = 20
	mostRows    = 50
)

// Colours of texts.
var (
	sheetDark = color.NRGBA{40, 40, 40, 255}
	sheetRed  = color.NRGBA{180, 0, 0, 255}
)

// Colours of epochs, which people with red-green colour blindness can distinguish (Okabe and Ito).
var sheetColours = []color.NRGBA{
	{0, 114, 178, 255},
	{230, 159, 0, 255},
	{0, 158, 115, 255},
	{204, 121, 167, 255},
	{86, 180, 233, 255},
	{213, 94, 0, 255},
}

func newContactSheet(opts transformOptions) *contactSheet {
	return &contactSheet{opts: opts, face: sheetFace()}
}

// sheetFace returns what texts on sheets are written in; nil: there is nothing.
func sheetFace() font.Face {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil
	}
	face, err := opentype.NewFace(f,
		&opentype.FaceOptions{Size: sheetFont, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil
	}
	return face
}

// row adds the row of the next image.
func (s *contactSheet) row(path string) *sheetRow {
	r := &sheetRow{path: path}
	s.rows = append(s.rows, r)
	return r
}

// original sets the image as it is stored.
func (r *sheetRow) original(data []byte) {
	if picture, err := decodeWhole(data); err == nil {
		r.stored = picture
	}
}

func (r *sheetRow) fail(err error) { r.failure = err.Error() }

// add adds the result of the next epoch.
func (r *sheetRow) add(picture image.Image, drawn []transform.Drawn) {
	var part image.Rectangle
	// The input of the first transform after decoding is the image as stored.
	if len(drawn) > 0 && drawn[0].Step == 1 {
		values := map[string]int{}
		for _, p := range drawn[0].Params {
			values[p.Name] = int(p.Value)
		}
		if left, ok := values["left"]; ok && values["width"] > 0 {
			part = image.Rect(left, values["top"], left+values["width"],
				values["top"]+values["height"])
		}
	}
	r.cells = append(r.cells, picture)
	r.parts = append(r.parts, part)
}

// draw renders the sheet.
func (s *contactSheet) draw() image.Image {
	rows := s.rows[:min(len(s.rows), mostRows)]
	columns := 1 + s.opts.count
	width := 2*sheetMargin + columns*(sheetCell+sheetGap) - sheetGap
	height := 2*sheetMargin + 3*sheetLine + len(rows)*(sheetCell+sheetLine+sheetGap)
	sheet := blankSheet(width, height)
	dark := sheetDark
	left := func(column int) int { return sheetMargin + column*(sheetCell+sheetGap) }
	inside := width - 2*sheetMargin
	sheetText(sheet, s.face, left(0), sheetMargin+sheetFont, inside, dark, s.opts.transforms)
	note := fmt.Sprintf("seed %d", s.opts.seed)
	if len(s.rows) > len(rows) {
		note += fmt.Sprintf("; the first %d of %d images", len(rows), len(s.rows))
	}
	sheetText(sheet, s.face, left(0), sheetMargin+sheetLine+sheetFont, inside, dark, note)
	head := sheetMargin + 2*sheetLine + sheetFont
	sheetText(sheet, s.face, left(0), head, sheetCell, dark, "as stored")
	for e := range s.opts.count {
		sheetText(sheet, s.face, left(1+e), head, sheetCell, sheetColours[e%len(sheetColours)],
			fmt.Sprintf("epoch %d", s.opts.epoch+e))
	}
	for i, r := range rows {
		top := sheetMargin + 3*sheetLine + i*(sheetCell+sheetLine+sheetGap)
		label := fmt.Sprintf("%d: %s", s.opts.sample+i, filepath.Base(r.path))
		if r.stored != nil {
			at := place(sheet, r.stored, left(0), top)
			size := r.stored.Bounds().Size()
			label += fmt.Sprintf(", %d x %d", size.X, size.Y)
			for e, part := range r.parts {
				outline(sheet, at, size, part, sheetColours[e%len(sheetColours)])
			}
		}
		sheetText(sheet, s.face, left(0), top+sheetCell+sheetFont+2, sheetCell+sheetGap, dark, label)
		for e, cell := range r.cells {
			place(sheet, cell, left(1+e), top)
		}
		if r.failure != "" {
			sheetText(sheet, s.face, left(1), top+sheetCell/2, width-left(1)-sheetMargin,
				sheetRed, r.failure)
		}
	}
	return sheet
}

// place draws a picture scaled to fit a cell, small ones by a whole factor, and returns its
// rectangle.
func place(sheet draw.Image, picture image.Image, left, top int) image.Rectangle {
	size := picture.Bounds().Size()
	factor := float64(sheetCell) / float64(max(size.X, size.Y))
	var scaler xdraw.Scaler = xdraw.CatmullRom
	if factor >= 2 {
		factor, scaler = float64(int(factor)), xdraw.NearestNeighbor
	} else if factor > 1 {
		factor = 1
	}
	w, h := max(int(float64(size.X)*factor), 1), max(int(float64(size.Y)*factor), 1)
	at := image.Rect(0, 0, w, h).Add(image.Pt(left+(sheetCell-w)/2, top+(sheetCell-h)/2))
	scaler.Scale(sheet, at, picture, picture.Bounds(), draw.Src, nil)
	return at
}

// outline outlines part, a rectangle of a picture of the given size that is drawn in at.
func outline(sheet *image.NRGBA, at image.Rectangle, size image.Point, part image.Rectangle,
	c color.NRGBA,
) {
	if part.Empty() {
		return
	}
	x := func(v int) int { return at.Min.X + v*at.Dx()/size.X }
	y := func(v int) int { return at.Min.Y + v*at.Dy()/size.Y }
	r := image.Rect(x(part.Min.X), y(part.Min.Y), max(x(part.Max.X), x(part.Min.X)+2),
		max(y(part.Max.Y), y(part.Min.Y)+2))
	for _, side := range []image.Rectangle{
		{r.Min, image.Pt(r.Max.X, r.Min.Y+2)},
		{image.Pt(r.Min.X, r.Max.Y-2), r.Max},
		{r.Min, image.Pt(r.Min.X+2, r.Max.Y)},
		{image.Pt(r.Max.X-2, r.Min.Y), r.Max},
	} {
		draw.Draw(sheet, side, image.NewUniform(c), image.Point{}, draw.Src)
	}
}

// blankSheet returns an empty sheet of this size.
func blankSheet(width, height int) *image.NRGBA {
	sheet := image.NewNRGBA(image.Rect(0, 0, width, height))
	draw.Draw(sheet, sheet.Bounds(), image.NewUniform(color.NRGBA{250, 250, 250, 255}),
		image.Point{}, draw.Src)
	return sheet
}

// sheetText writes one line, truncated to width.
func sheetText(sheet draw.Image, face font.Face, left, base, width int, c color.Color,
	line string,
) {
	if face == nil {
		return
	}
	whole := human.Name(line)
	for runes := []rune(whole); ; runes = runes[:len(runes)-1] {
		shown := string(runes)
		if len(shown) < len(whole) {
			shown += "…"
		}
		if font.MeasureString(face, shown).Ceil() <= width || len(runes) == 0 {
			d := font.Drawer{
				Dst:  sheet,
				Src:  image.NewUniform(c),
				Face: face,
				Dot:  fixed.P(left, base),
			}
			d.DrawString(shown)
			return
		}
	}
}
