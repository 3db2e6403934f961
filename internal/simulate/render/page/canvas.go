package page

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

	"github.com/hdmlp/hdmlp/internal/simulate/render/words"
)

// figure is a plot. It is drawn in two widths: wide for screens, paper and its own files, and
// narrow for phones, so that the text keeps its size.
type figure struct {
	name    string // of its files
	title   string
	caption string // below it, on the page
	height  func(w vg.Length) vg.Length
	draw    func(c *canvas)
}

const (
	wide   vg.Length = 720
	narrow vg.Length = 320
)

// The colours, dark on light. Tiers and policies differ in lightness as well as in hue, so that
// people with colour blindness can tell them apart.
var (
	ink      = rgb(0x1f2630)
	softInk  = rgb(0x5b6470)
	rule     = rgb(0xd9dde2)
	paper    = rgb(0xffffff)
	waiting  = rgb(0x4a5260) // before training
	nothing  = rgb(0xb9c0c9) // no read: all samples are in the staging buffer
	ofSource = rgb(0xc8501e)
	ofRemote = rgb(0xf0b73f)
	ofLocal  = []color.RGBA{
		rgb(0x1a5e97), rgb(0x7db8de), rgb(0x11806a), rgb(0x9bd3b9),
		rgb(0x6b4c9a), rgb(0xc3b1e1),
	}
)

func rgb(v uint32) color.RGBA {
	return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
}

// tierColour returns the colour of the tier with that key.
func tierColour(key string) color.RGBA {
	switch key {
	case "source":
		return ofSource
	case "remote":
		return ofRemote
	case "0":
		return nothing
	}
	j, _ := strconv.Atoi(key)
	return ofLocal[max(0, j-1)%len(ofLocal)]
}

// canvas is the area that a figure is drawn on; (0, 0) is the upper left corner.
type canvas struct {
	draw.Canvas
	w, h   vg.Length
	narrow bool
}

// margin is the margin around a figure in its own file.
const margin vg.Length = 16

// render draws the figure, with a margin around it.
func (f *figure) render(on vg.CanvasSizer, w, margin vg.Length) {
	c := &canvas{Canvas: draw.New(on), w: w, h: f.height(w), narrow: w < 500}
	c.Translate(vg.Point{X: margin, Y: margin})
	c.rect(-margin, -margin, c.w+2*margin, c.h+2*margin, paper)
	c.text(0, 9, f.title, style(c.titleSize(), ink, true), left)
	f.draw(c)
}

func (c *canvas) titleSize() vg.Length {
	if c.narrow {
		return 12
	}
	return 14
}

// titleRoom is the height of the title.
const titleRoom vg.Length = 26

// png writes the wide figure as PNG, with more than two pixels per point.
func (f *figure) png(w io.Writer) error {
	c := vgimg.PngCanvas{
		Canvas: vgimg.NewWith(vgimg.UseWH(wide+2*margin, f.height(wide)+2*margin),
			vgimg.UseDPI(160), vgimg.UseBackgroundColor(paper)),
	}
	f.render(c, wide, margin)
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("write %s.png: %w", f.name, err)
	}
	return nil
}

// svg returns the figure as SVG. The fonts are not embedded, and a viewer's font may be wider than
// the one that text was measured with; so each text element has a textLength, which prevents text
// from being cut or overlapping.
func (f *figure) svg(width, margin vg.Length) ([]byte, error) {
	c := &svgCanvas{Canvas: vgsvg.New(width+2*margin, f.height(width)+2*margin)}
	f.render(c, width, margin)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw %s: %w", f.name, err)
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

// align is the position of a text relative to its point.
type align int

const (
	left align = iota
	centre
	right
)

func style(size vg.Length, colour color.Color, strong bool) text.Style {
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

// text writes a line centred vertically at y.
func (c *canvas) text(x, y vg.Length, s string, sty text.Style, a align) {
	if s == "" {
		return
	}
	// Text is centred by the height of a capital letter, so that lines with and without descenders
	// align.
	sty.XAlign, sty.YAlign = [...]text.XAlignment{text.XLeft, text.XCenter, text.XRight}[a],
		text.YBottom
	c.FillText(sty, vg.Point{X: x, Y: c.h - y - sty.Font.Size*0.36}, s)
}

// within writes a line centred at (x, y), or as near to x as the figure's edges allow.
func (c *canvas) within(x, y vg.Length, s string, sty text.Style) {
	half := sty.Width(s) / 2
	c.text(max(half, min(x, c.w-half)), y, s, sty, centre)
}

// onPaper writes a line as text does, on an opaque background.
func (c *canvas) onPaper(x, y vg.Length, s string, sty text.Style) {
	c.rect(x-2, y-sty.Font.Size*0.55, sty.Width(s)+4, sty.Font.Size*1.1, paper)
	c.text(x, y, s, sty, left)
}

// turned writes a line upwards, centred at (x, y).
func (c *canvas) turned(x, y vg.Length, s string, sty text.Style) {
	sty.Rotation, sty.XAlign, sty.YAlign = math.Pi/2, text.XCenter, text.YCenter
	c.FillText(sty, vg.Point{X: x, Y: c.h - y}, s)
}

func (c *canvas) rect(x, y, w, h vg.Length, fill color.Color) {
	c.FillPolygon(fill, []vg.Point{
		{X: x, Y: c.h - y},
		{X: x + w, Y: c.h - y},
		{X: x + w, Y: c.h - y - h},
		{X: x, Y: c.h - y - h},
	})
}

func (c *canvas) line(colour color.Color, width vg.Length, dashes []vg.Length, points ...vg.Point) {
	turned := make([]vg.Point, len(points))
	for i, p := range points {
		turned[i] = vg.Point{X: p.X, Y: c.h - p.Y}
	}
	c.StrokeLines(draw.LineStyle{Color: colour, Width: width, Dashes: dashes}, turned)
}

func (c *canvas) polygon(fill color.Color, points []vg.Point) {
	turned := make([]vg.Point, len(points))
	for i, p := range points {
		turned[i] = vg.Point{X: p.X, Y: c.h - p.Y}
	}
	c.FillPolygon(fill, turned)
}

func (c *canvas) dot(x, y, radius vg.Length, colour color.Color) {
	c.DrawGlyph(draw.GlyphStyle{Color: colour, Radius: radius, Shape: draw.CircleGlyph{}},
		vg.Point{X: x, Y: c.h - y})
}

// fit shortens a text to the given width.
func fit(s string, sty text.Style, w vg.Length) string {
	if sty.Width(s) <= w {
		return s
	}
	runes := []rune(s)
	for len(runes) > 1 && sty.Width(string(runes)+"…") > w {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ,;") + "…"
}

// legendEntry is a colour and its name.
type legendEntry struct {
	colour color.Color
	name   string
	dashed bool // a line rather than an area
}

// legend writes the entries from (x, y) on, in as many lines as the width requires, and returns
// their height. With a nil canvas it only measures.
func legend(c *canvas, entries []legendEntry, x, y, width vg.Length) vg.Length {
	sty := style(10, ink, false)
	const height, box, gap = 16, 10, 14
	at, row := x, y
	for _, e := range entries {
		need := box + 5 + sty.Width(e.name)
		if at > x && at+need > x+width {
			at, row = x, row+height
		}
		if c != nil {
			if e.dashed {
				c.line(e.colour, 1.5, []vg.Length{3, 2}, vg.Point{X: at, Y: row + height/2},
					vg.Point{X: at + box, Y: row + height/2})
			} else {
				c.rect(at, row+height/2-box/2, box, box, e.colour)
			}
			c.text(at+box+5, row+height/2, e.name, sty, left)
		}
		at += need + gap
	}
	return row + height - y
}

// ticks returns round values from lo to hi, at most about n.
func ticks(lo, hi float64, n int) []float64 {
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

// logTicks returns 1, 2 and 5 times powers of ten from lo to hi, or only the powers if there are
// many.
func logTicks(lo, hi float64) []float64 {
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

// tickText formats the value of a tick.
func tickText(v float64) string {
	if math.Abs(v) >= 1000 {
		return words.Group(v, 0)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
