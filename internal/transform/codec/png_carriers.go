package codec

import (
	"bytes"
	"compress/zlib"
	"io"
)

// pngCarriers collects the carriers of orientation among a PNG's chunks. Of several of one kind the
// last one counts. Text is inflated when all are known.
type pngCarriers struct {
	exif         []byte
	profile, xmp pngText
}

// pngText is a text of a PNG.
type pngText struct {
	text   []byte
	packed bool
}

// add adds a chunk.
func (c *pngCarriers) add(kind string, body []byte) {
	switch kind {
	case "eXIf":
		c.exif = body
	case "tEXt", "zTXt", "iTXt":
		key, text, _ := bytes.Cut(body, []byte{0})
		c.addText(kind, string(key), text)
	}
}

func (c *pngCarriers) addText(kind, key string, text []byte) {
	found := pngText{text, false}
	switch kind {
	case "zTXt":
		if len(text) < 1 || text[0] != 0 {
			return
		}
		found = pngText{text[1:], true}
	case "iTXt": // flag and method of compression, language, translated key
		if len(text) < 2 || text[0] != 0 && text[1] != 0 {
			return
		}
		parts := bytes.SplitN(text[2:], []byte{0}, 3)
		if len(parts) < 3 {
			return
		}
		found = pngText{parts[2], text[0] != 0}
	}
	switch key {
	case "exif":
		if kind == "tEXt" {
			c.exif = text
		}
	case "Raw profile type exif":
		c.profile = found
	case "XML:com.adobe.xmp":
		c.xmp = found
	}
}

func (c *pngCarriers) orientation() int {
	says := carriers{exif: c.exif}
	if c.exif == nil {
		says.profile = c.profile.inflated()
	}
	says.xmp = c.xmp.inflated()
	return says.orientation()
}

// inflated returns the text; nil if it is too large or damaged.
func (t pngText) inflated() []byte {
	if !t.packed {
		return t.text
	}
	r, err := zlib.NewReader(bytes.NewReader(t.text))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil || len(text) > maxText {
		return nil
	}
	return text
}
