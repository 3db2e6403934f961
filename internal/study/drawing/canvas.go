// Package drawing draws figures and the pages that they stand on, without knowing what they are of:
// a canvas with text and lines, charts of numbers with their intervals, stacked bars, and documents
// of figures and tables, as HTML that needs no network, PNG and SVG. It and the packages that draw
// with it are the only ones that import the plotting library.
package drawing

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot" // also registers the fonts
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Figure is a plot. It is drawn in two widths: wide for screens, paper and its own files, and
// narrow for phones, so that the text keeps its size.
type Figure struct {
	Name    string // of its files
	Title   string
	Caption string // below it, on the page
	Height  func(w vg.Length) vg.Length
	Draw    func(c *Canvas)
}

// Widths of a figure.
const (
	Wide   vg.Length = 720
	Narrow vg.Length = 320
)

// The colours of text, lines and the background: dark on light.
var (
	Ink     = RGB(0x1f2630)
	SoftInk = RGB(0x5b6470)
	Rule    = RGB(0xd9dde2)
	Paper   = RGB(0xffffff)
)

// RGB returns the colour 0xRRGGBB.
func RGB(v uint32) color.RGBA {
	return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
}

// Canvas is the area that a figure is drawn on; (0, 0) is the upper left corner.
type Canvas struct {
	draw.Canvas
	W, H   vg.Length
	Narrow bool
}

// Margin is the margin around a figure in its own file.
const Margin vg.Length = 16

// render draws the figure, with a margin around it.
func (f *Figure) render(on vg.CanvasSizer, w, margin vg.Length) {
	c := &Canvas{Canvas: draw.New(on), W: w, H: f.Height(w), Narrow: w < 500}
	c.Translate(vg.Point{X: margin, Y: margin})
	c.Rect(-margin, -margin, c.W+2*margin, c.H+2*margin, Paper)
	c.Text(0, 9, f.Title, Style(c.titleSize(), Ink, true), Left)
	f.Draw(c)
}

func (c *Canvas) titleSize() vg.Length {
	if c.Narrow {
		return 12
	}
	return 14
}

// TitleRoom is the height of the title.
const TitleRoom vg.Length = 26

// PNG writes the wide figure as PNG, with more than two pixels per point.
func (f *Figure) PNG(w io.Writer) error {
	c := vgimg.PngCanvas{
		Canvas: vgimg.NewWith(vgimg.UseWH(Wide+2*Margin, f.Height(Wide)+2*Margin),
			vgimg.UseDPI(160), vgimg.UseBackgroundColor(Paper)),
	}
	f.render(c, Wide, Margin)
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("write %s.png: %w", f.Name, err)
	}
	return nil
}

// SVG returns the figure as SVG. The fonts are not embedded, and a viewer's font may be wider than
// the one that text was measured with; so each text element has a textLength, which prevents text
// from being cut or overlapping.
func (f *Figure) SVG(width, margin vg.Length) ([]byte, error) {
	c := &svgCanvas{Canvas: vgsvg.New(width+2*margin, f.Height(width)+2*margin)}
	f.render(c, width, margin)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw %s: %w", f.Name, err)
	}
	drawn := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	i := -1
	return textStart.ReplaceAllFunc(drawn, func([]byte) []byte {
		i++
		return fmt.Appendf(nil, `<text textLength="%.5g" lengthAdjust="spacingAndGlyphs" `,
			c.widths[i].Points())
	}), nil
}

var textStart = regexp.MustCompile(`<text `)

// svgCanvas records the widths of texts in the order in which they are written.
type svgCanvas struct {
	*vgsvg.Canvas
	widths []vg.Length
}

// FillString implements vg.Canvas.
func (c *svgCanvas) FillString(f font.Face, at vg.Point, s string) {
	c.widths = append(c.widths, f.Width(s))
	c.Canvas.FillString(f, at, s)
}

// Align is the position of a text relative to its point.
type Align int

const (
	Left Align = iota
	Centre
	Right
)

// Style returns the style of text of this size.
func Style(size vg.Length, colour color.Color, strong bool) text.Style {
	weight := xfont.WeightNormal
	if strong {
		weight = xfont.WeightBold
	}
	return text.Style{
		Color:  colour,
		Font:   font.Font{Typeface: "Liberation", Variant: "Sans", Size: size, Weight: weight},
		YAlign: text.YCenter, Handler: plot.DefaultTextHandler,
	}
}

// Text writes a line centred vertically at y.
func (c *Canvas) Text(x, y vg.Length, s string, sty text.Style, a Align) {
	if s == "" {
		return
	}
	s = human.Text(s) // XML has no control characters
	// Text is centred by the height of a capital letter, so that lines with and without descenders
	// align.
	sty.XAlign, sty.YAlign = [...]text.XAlignment{text.XLeft, text.XCenter, text.XRight}[a],
		text.YBottom
	c.FillText(sty, vg.Point{X: x, Y: c.H - y - sty.Font.Size*0.36}, s)
}

// Within writes a line centred at (x, y), or as near to x as the figure's edges allow.
func (c *Canvas) Within(x, y vg.Length, s string, sty text.Style) {
	half := sty.Width(s) / 2
	c.Text(max(half, min(x, c.W-half)), y, s, sty, Centre)
}

// OnPaper writes a line as text does, on an opaque background.
func (c *Canvas) OnPaper(x, y vg.Length, s string, sty text.Style) {
	c.Rect(x-2, y-sty.Font.Size*0.55, sty.Width(s)+4, sty.Font.Size*1.1, Paper)
	c.Text(x, y, s, sty, Left)
}

// Turned writes a line upwards, centred at (x, y).
func (c *Canvas) Turned(x, y vg.Length, s string, sty text.Style) {
	sty.Rotation = math.Pi / 2
	sty.XAlign = text.XCenter
	sty.YAlign = text.YCenter
	c.FillText(sty, vg.Point{X: x, Y: c.H - y}, s)
}

// Rect fills a rectangle with the upper left corner (x, y).
func (c *Canvas) Rect(x, y, w, h vg.Length, fill color.Color) {
	c.FillPolygon(fill, []vg.Point{
		{X: x, Y: c.H - y},
		{X: x + w, Y: c.H - y},
		{X: x + w, Y: c.H - y - h},
		{X: x, Y: c.H - y - h},
	})
}

// Line draws a line through points.
func (c *Canvas) Line(colour color.Color, width vg.Length, dashes []vg.Length, points ...vg.Point) {
	turned := make([]vg.Point, len(points))
	for i, p := range points {
		turned[i] = vg.Point{X: p.X, Y: c.H - p.Y}
	}
	c.StrokeLines(draw.LineStyle{Color: colour, Width: width, Dashes: dashes}, turned)
}

// Polygon fills a polygon.
func (c *Canvas) Polygon(fill color.Color, points []vg.Point) {
	turned := make([]vg.Point, len(points))
	for i, p := range points {
		turned[i] = vg.Point{X: p.X, Y: c.H - p.Y}
	}
	c.FillPolygon(fill, turned)
}

// Dot draws a filled circle.
func (c *Canvas) Dot(x, y, radius vg.Length, colour color.Color) {
	c.DrawGlyph(draw.GlyphStyle{Color: colour, Radius: radius, Shape: draw.CircleGlyph{}},
		vg.Point{X: x, Y: c.H - y})
}

// Fit shortens a text to the given width.
func Fit(s string, sty text.Style, w vg.Length) string {
	if sty.Width(s) <= w {
		return s
	}
	runes := []rune(s)
	for len(runes) > 1 && sty.Width(string(runes)+"…") > w {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ,;") + "…"
}

// Entry is a colour and its name.
type Entry struct {
	Colour color.Color
	Name   string
	Dashed bool // a line rather than an area
}

// Legend writes the entries from (x, y) on, in as many lines as the width requires, and returns
// their height. With a nil canvas it only measures.
func Legend(c *Canvas, entries []Entry, x, y, width vg.Length) vg.Length {
	sty := Style(10, Ink, false)
	const (
		height = 16
		box    = 10
		gap    = 14
	)
	at, row := x, y
	for _, e := range entries {
		need := box + 5 + sty.Width(e.Name)
		if at > x && at+need > x+width {
			at, row = x, row+height
		}
		if c != nil {
			if e.Dashed {
				c.Line(e.Colour, 1.5, []vg.Length{3, 2}, vg.Point{X: at, Y: row + height/2},
					vg.Point{X: at + box, Y: row + height/2})
			} else {
				c.Rect(at, row+height/2-box/2, box, box, e.Colour)
			}
			c.Text(at+box+5, row+height/2, e.Name, sty, Left)
		}
		at += need + gap
	}
	return row + height - y
}

// Ticks returns round values from lo to hi, at most about n.
func Ticks(lo, hi float64, n int) []float64 {
	if !(hi > lo) {
		return []float64{lo}
	}
	raw := (hi - lo) / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step*m >= raw {
			step *= m
			break
		}
	}
	var all []float64
	for i := math.Ceil(lo / step * (1 - 1e-12)); i*step <= hi*(1+1e-12); i++ {
		all = append(all, i*step)
	}
	return all
}

// LogTicks returns 1, 2 and 5 times powers of ten from lo to hi, or only the powers if there are
// many.
func LogTicks(lo, hi float64) []float64 {
	var fine, coarse []float64
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= lo*0.999 && v <= hi*1.001 {
				fine = append(fine, v)
				if m == 1 {
					coarse = append(coarse, v)
				}
			}
		}
	}
	if len(fine) > 7 && len(coarse) > 1 {
		return coarse
	}
	return fine
}

// TickText formats the value of a tick.
func TickText(v float64) string {
	if math.Abs(v) >= 1000 {
		return human.Group(v, 0)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
