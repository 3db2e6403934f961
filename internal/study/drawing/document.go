package drawing

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

//go:embed document.html
var documentText string

var documentPage = template.Must(template.New("document").Parse(documentText))

// Document is a page of figures and tables: one self-contained HTML file, for wide screens, phones
// and paper.
type Document struct {
	Title   string
	Summary []string // sentences
	Facts   []Fact
	Figures []*Figure
	Tables  []Table
	Notes   []string // at the foot
}

// Fact is a name and its value.
type Fact struct{ Name, Value string }

// Table is a table of a document.
type Table struct {
	Title string
	Head  []string
	Rows  []Row
	Pairs bool // names and values are short: phones show two cells side by side
}

// Row is a row of a table.
type Row struct {
	Head  string
	Note  string // what stands in place of the cells
	Cells []Cell
}

// Cell is a cell. On phones, where a row is shown as a card, Name labels the cell.
type Cell struct{ Name, Value, Detail string }

// shownFigure is a figure on the page, in both widths.
type shownFigure struct {
	Title, Caption string
	Wide, Narrow   template.HTML
}

// HTML writes the page.
func (d *Document) HTML(w io.Writer) error {
	page := struct {
		*Document
		Figures []shownFigure
	}{Document: d}
	for _, f := range d.Figures {
		shown, err := f.show()
		if err != nil {
			return err
		}
		page.Figures = append(page.Figures, shown)
	}
	var b bytes.Buffer
	if err := documentPage.Execute(&b, page); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if _, err := io.WriteString(w, human.Text(b.String())); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// show draws the figure for a page.
func (f *Figure) show() (shownFigure, error) {
	shown := shownFigure{Title: f.Title, Caption: f.Caption}
	for _, v := range []struct {
		width vg.Length
		to    *template.HTML
	}{{Wide, &shown.Wide}, {Narrow, &shown.Narrow}} {
		text, err := f.SVG(v.width, 0)
		if err != nil {
			return shown, err
		}
		*v.to = inline(text, f.Title)
	}
	return shown, nil
}

var (
	svgStart = regexp.MustCompile(`(?s)^.*?<svg [^>]*>`)
	viewBox  = regexp.MustCompile(`viewBox="[^"]*"`)
)

// inline returns an SVG file as an element of the page. Its contents were drawn by this package,
// with text escaped, so they are safe HTML.
func inline(svg []byte, title string) template.HTML {
	box := viewBox.Find(svgStart.Find(svg))
	head := fmt.Sprintf(`<svg %s role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`,
		box, template.HTMLEscapeString(title))
	return template.HTML(svgStart.ReplaceAllLiteral(svg, []byte(head)))
}

// File is a file of a document's directory.
type File struct {
	Name  string
	Write func(io.Writer) error
}

// Write writes the document to a directory, which it creates if necessary: index.html, the other
// files, and each figure as PNG and SVG. It returns the names of the files written, also on error.
func (d *Document) Write(dir string, others ...File) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	files := append([]File{{"index.html", d.HTML}}, others...)
	for _, f := range d.Figures {
		files = append(files, File{f.Name + ".png", f.PNG}, File{
			f.Name + ".svg",
			func(w io.Writer) error {
				text, err := f.SVG(Wide, Margin)
				if err == nil {
					_, err = w.Write(text)
				}
				return err
			},
		})
	}
	var names []string
	for _, f := range files {
		var b bytes.Buffer
		if err := f.Write(&b); err != nil {
			return names, err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), b.Bytes(), 0o666); err != nil {
			return names, fmt.Errorf("write the report: %w", err)
		}
		names = append(names, f.Name)
	}
	return names, nil
}
