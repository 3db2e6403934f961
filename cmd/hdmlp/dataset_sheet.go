package main

import (
	"context"
	"fmt"
	"image"
	"path"
	"strings"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// The size of a dataset's contact sheet: of its samples, as many are drawn, from the first to the
// last at equal distances.
const (
	sheetColumns = 8
	sheetImages  = 6 * sheetColumns
)

// checkSheet returns an error if a contact sheet cannot be written to a file.
func checkSheet(file string) error {
	if !strings.EqualFold(path.Ext(file), ".png") {
		return badInput("--sheet %s: the file's name must end in .png", file)
	}
	if err := checkTarget(file); err != nil {
		return badInput("--sheet %s: %w", file, err)
	}
	return nil
}

// drawDataset draws images of a dataset, with their keys, to a file.
func drawDataset(ctx context.Context, src source.Indexed, file string) error {
	x := src.Index()
	field, err := imageField(ctx, src)
	if err != nil {
		return err
	}
	n := min(sheetImages, x.Len())
	rows := (n + sheetColumns - 1) / sheetColumns
	columns := min(n, sheetColumns)
	sheet := blankSheet(2*sheetMargin+columns*(sheetCell+sheetGap)-sheetGap,
		2*sheetMargin+rows*(sheetCell+sheetLine+sheetGap)-sheetGap)
	face := sheetFace()
	for i := range n {
		id := i * x.Len() / n
		left := sheetMargin + i%sheetColumns*(sheetCell+sheetGap)
		top := sheetMargin + i/sheetColumns*(sheetCell+sheetLine+sheetGap)
		label := fmt.Sprintf("%d: %s", id, path.Base(x.Name(id)))
		picture, err := pictureOf(ctx, src, id, field)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			sheetText(sheet, face, left, top+sheetCell/2, sheetCell, sheetRed, err.Error())
		case picture != nil:
			place(sheet, picture, left, top)
			size := picture.Bounds().Size()
			label += fmt.Sprintf(", %d x %d", size.X, size.Y)
		}
		sheetText(sheet, face, left, top+sheetCell+sheetFont+2, sheetCell, sheetDark, label)
	}
	return writePNG(file, sheet)
}

// imageField returns the first field that holds an image in the first sample that has the field.
func imageField(ctx context.Context, src source.Indexed) (int, error) {
	x := src.Index()
	var d codec.Decoder
	defer d.Close()
	for f := range max(len(x.Fields()), 1) {
		for id := range x.Len() {
			if x.FieldSize(f, id) == source.Missing {
				continue
			}
			data, err := fieldOf(ctx, src, id, f)
			if err != nil {
				return 0, err
			}
			if _, err := d.Header(data); err == nil {
				return f, nil
			}
			break
		}
	}
	return 0, badInput("--sheet: the first sample has no JPEG, PNG or WebP image: leave it out")
}

// pictureOf returns the image in a field of a sample; nil: the sample does not have it.
func pictureOf(ctx context.Context, src source.Indexed, id, field int) (image.Image, error) {
	data, err := fieldOf(ctx, src, id, field)
	if err != nil || data == nil {
		return nil, err
	}
	return decodeWhole(data)
}

// fieldOf reads a field of a sample; nil: the sample does not have it.
func fieldOf(ctx context.Context, src source.Indexed, id, field int) ([]byte, error) {
	x := src.Index()
	if x.Size(id) > maxPicture {
		return nil, fmt.Errorf("sample %d has more than %s", id, byteSize(maxPicture))
	}
	packed := make([]byte, x.Size(id))
	if _, err := src.Read(ctx, id, packed); err != nil {
		return nil, err
	}
	return x.Split(nil, id, packed)[field], nil
}
