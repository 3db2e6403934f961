package main

import (
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// transformOptions are the options of `hdmlp transform`.
type transformOptions struct {
	paths                []string
	transforms, dir      string
	seed                 uint64
	epoch, count, sample int
	json                 bool
}

func newTransformCommand() *cobra.Command {
	var opts transformOptions
	cmd := &cobra.Command{
		Use:   "transform IMAGE... --transforms LIST --out DIR",
		Short: "Show the results of transforms on images",
		Long: `Apply transforms to images, and write what a training process would get as PNG
files in DIR, together with an overview, DIR/contact-sheet.png. Tensors are
converted back to pixels for this, which undoes normalisation.

LIST is written as in a script, with the names and arguments of
hdmlp.transforms, or is its JSON description (docs/FORMATS.md). As in training,
random parameters depend on the seed, the epoch and the sample's ID: the first
IMAGE stands for sample --sample, the next one for the sample after it.

EXIT STATUS
  0    success
  1    an image cannot be decoded or transformed; the others were written
  2    wrong input: no such file, transforms that cannot be compiled, ...
  130  interrupted`,
		Example: `  hdmlp transform cat.jpg dog.jpg --out look --count 6 \
      --transforms 'RandomResizedCrop(224), ColorJitter(0.4), ToTensor()'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badInput("transform takes one image or more")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
			opts.json, _ = cmd.Flags().GetBool("json")
			return runTransform(cmd, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.transforms, "transforms", "",
		"list of transforms, such as 'Resize(256), CenterCrop(224), ToTensor()'")
	flags.StringVar(&opts.dir, "out", "",
		"directory for the pictures; created if missing, but not its parent")
	flags.Uint64Var(&opts.seed, "seed", 0, "seed of the job")
	flags.IntVar(&opts.epoch, "epoch", 0, "first epoch to show")
	flags.IntVar(&opts.count, "count", 1, "number of epochs to show")
	flags.IntVar(&opts.sample, "sample", 0, "sample ID of the first IMAGE")
	return cmd
}

// check validates the options, and compiles the transforms.
func (o transformOptions) check() (*transform.Program, error) {
	const mostEpochs = 100
	switch {
	case strings.TrimSpace(o.transforms) == "":
		return nil, badInput("--transforms is missing; give a list such as " +
			"'RandomResizedCrop(224), ToTensor()'")
	case o.dir == "":
		return nil, badInput("--out is missing; give a directory for the pictures")
	case o.epoch < 0:
		return nil, badInput("--epoch is %d; it must be 0 or more", o.epoch)
	case o.count < 1 || o.count > mostEpochs:
		return nil, badInput("--count is %d; allowed: 1 to %d", o.count, mostEpochs)
	case o.sample < 0:
		return nil, badInput("--sample is %d; it must be 0 or more", o.sample)
	}
	description, err := transform.Parse(o.transforms)
	if err != nil {
		return nil, badInput("%w", err)
	}
	program, err := transform.Compile(description)
	if err != nil {
		return nil, badInput("%w", err)
	}
	if program.Arrays() {
		return nil, badInput("--transforms: arrays have no picture; give transforms of images")
	}
	if program.Ragged() {
		return nil, badInput("--transforms: Ragged is only for lists that continue in Python; omit it")
	}
	return program, nil
}

// transformAnswer is what `hdmlp transform --json` prints.
type transformAnswer struct {
	Output transformOutput    `json:"output"`
	Views  []transformOutput  `json:"views,omitempty"` // Output is the first of them
	Images []transformedImage `json:"images"`
	Sheet  string             `json:"contact_sheet"` // "" if no image could be transformed
	Times  []transformTime    `json:"times"`

	failures []error
}

// transformOutput is what a sample becomes.
type transformOutput struct {
	Shape  []int  `json:"shape"`
	Type   string `json:"type"`
	Layout string `json:"layout"`
	Bytes  int    `json:"bytes"`
}

func newTransformOutput(o transform.Output) transformOutput {
	return transformOutput{
		Shape: o.Shape, Type: o.Type.String(), Bytes: o.Bytes(),
		Layout: [...]string{pixels.CHW: "CHW", pixels.HWC: "HWC"}[o.Layout],
	}
}

func (o transformOutput) String() string {
	shape := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(o.Shape)), " x "), "[]")
	return fmt.Sprintf("%s %s (%s), %s", shape, o.Type, o.Layout, byteSize(float64(o.Bytes)))
}

type transformedImage struct {
	Path   string          `json:"path"`
	Sample int             `json:"sample"`
	Error  string          `json:"error,omitempty"`
	Draws  []transformDraw `json:"draws,omitempty"`
}

// transformDraw is the result of one epoch for an image.
type transformDraw struct {
	Epoch int              `json:"epoch"`
	File  string           `json:"file"`
	Drawn []transformDrawn `json:"drawn"`
}

// transformDrawn holds the random parameters of a transform.
type transformDrawn struct {
	Transform  string             `json:"transform"`
	Parameters map[string]float64 `json:"parameters"`
	text       string
}

// transformTime is the time that a transform took per picture.
type transformTime struct {
	Transform    string  `json:"transform"`
	Milliseconds float64 `json:"milliseconds"`
}

// runTransform writes the pictures and prints a description of them.
func runTransform(cmd *cobra.Command, opts transformOptions) error {
	program, err := opts.check()
	if err != nil {
		return err
	}
	for _, path := range opts.paths {
		if info, err := os.Stat(path); err != nil {
			return badInput("%w", err)
		} else if !info.Mode().IsRegular() {
			return badInput("%s: not a regular file", path)
		}
	}
	if err := host.Directory(opts.dir); err != nil {
		return badInput("--out %s: %w", human.Name(opts.dir), err)
	}
	if err := os.Mkdir(opts.dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return badInput("--out: %w", err)
	}
	answer, err := transformAll(cmd, opts, program)
	if err != nil {
		return err
	}
	if opts.json {
		err = printJSON(cmd.OutOrStdout(), answer)
	} else {
		err = answer.print(cmd.OutOrStdout())
	}
	return errors.Join(append(answer.failures, err)...)
}

// maxPicture is the size limit of an image's file, in bytes.
const maxPicture = 1 << 30

// transformAll makes the pictures and the contact sheet.
func transformAll(cmd *cobra.Command, opts transformOptions,
	program *transform.Program,
) (*transformAnswer, error) {
	answer := &transformAnswer{}
	answer.Output = newTransformOutput(program.Output())
	bytes := 0 // of a sample
	for _, o := range program.Outputs() {
		bytes += o.Bytes()
		if program.Views() {
			answer.Views = append(answer.Views, newTransformOutput(o))
		}
	}
	w := program.Worker()
	defer w.Close()
	w.Record(true)
	sheet := newContactSheet(opts)
	pictures := 0
	for i, path := range opts.paths {
		shown := transformedImage{Path: path, Sample: opts.sample + i}
		row := sheet.row(path)
		data, err := files.Read(path, maxPicture)
		if err != nil {
			return nil, inputError{err}
		}
		row.original(data)
		for e := range opts.count {
			if err := cmd.Context().Err(); err != nil {
				return nil, err
			}
			epoch := opts.epoch + e
			buffer := make([]byte, bytes)
			if err := w.Apply(buffer, data,
				transform.Key{Seed: opts.seed, Epoch: epoch, Sample: shown.Sample}); err != nil {
				answer.failures = append(answer.failures,
					fmt.Errorf("sample %d, %s: %w", shown.Sample, path, err))
				shown.Error = err.Error()
				row.fail(err)
				break
			}
			picture, err := program.Picture(buffer)
			if err != nil {
				return nil, err
			}
			base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			draw := transformDraw{
				Epoch: epoch, Drawn: drawnBy(program, w),
				File: filepath.Join(opts.dir,
					fmt.Sprintf("%03d-%s-epoch%d.png", shown.Sample, base, epoch)),
			}
			if err := writePNG(draw.File, picture); err != nil {
				return nil, err
			}
			row.add(picture, w.Drawn())
			shown.Draws = append(shown.Draws, draw)
			pictures++
		}
		answer.Images = append(answer.Images, shown)
	}
	for i, d := range w.Times() {
		answer.Times = append(answer.Times,
			transformTime{
				program.Names()[i],
				float64(d.Microseconds()) / 1000 / float64(max(pictures, 1)),
			})
	}
	if pictures == 0 {
		return answer, nil
	}
	answer.Sheet = filepath.Join(opts.dir, "contact-sheet.png")
	return answer, writePNG(answer.Sheet, sheet.draw())
}

// drawnBy returns the random parameters of the worker's last sample.
func drawnBy(program *transform.Program, w *transform.Worker) []transformDrawn {
	list := []transformDrawn{}
	for _, d := range w.Drawn() {
		name := program.Names()[d.Step]
		if n := len(list); n == 0 || list[n-1].Transform != name {
			list = append(list, transformDrawn{Transform: name, Parameters: map[string]float64{}})
		}
		last := &list[len(list)-1]
		for _, p := range d.Params {
			last.Parameters[p.Name] = p.Value
			last.text += fmt.Sprintf(" %s=%.4g", p.Name, p.Value)
		}
	}
	return list
}

func writePNG(path string, picture image.Image) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return png.Encode(f, picture)
}

// print formats the answer for people.
func (a *transformAnswer) print(out io.Writer) error {
	var b strings.Builder
	if len(a.Views) == 0 {
		fmt.Fprintf(&b, "A sample becomes %v\n", a.Output)
	}
	for i, o := range a.Views {
		fmt.Fprintf(&b, "View %d of a sample is %v\n", i, o)
	}
	for _, img := range a.Images {
		if img.Error != "" && len(img.Draws) == 0 {
			continue // the error goes to standard error
		}
		fmt.Fprintf(&b, "\n%s, as sample %d\n", human.Name(img.Path), img.Sample)
		for _, d := range img.Draws {
			fmt.Fprintf(&b, "  epoch %d  %s\n", d.Epoch, human.Name(d.File))
			for _, t := range d.Drawn {
				fmt.Fprintf(&b, "    %-20s%s\n", t.Transform, t.text)
			}
		}
	}
	if a.Sheet == "" {
		_, err := io.WriteString(out, b.String())
		return err
	}
	fmt.Fprint(&b, "\nTime per picture, on one thread\n")
	for _, t := range a.Times {
		d := time.Duration(t.Milliseconds * float64(time.Millisecond))
		if d >= time.Microsecond {
			fmt.Fprintf(&b, "  %-22s %7.2f ms\n", t.Transform, t.Milliseconds)
		}
	}
	fmt.Fprintf(&b, "\nOverview: %s\n", human.Name(a.Sheet))
	_, err := io.WriteString(out, b.String())
	return err
}

// decodeWhole decodes an image as it is stored, for the contact sheet.
func decodeWhole(data []byte) (image.Image, error) {
	var d codec.Decoder
	defer d.Close()
	var m pixels.Image
	if _, err := d.Decode(&m, data, codec.Want{}); err != nil {
		return nil, err
	}
	picture := image.NewNRGBA(m.Bounds())
	for y := range m.Height {
		row := m.Row(y)
		for x := range m.Width {
			copy(picture.Pix[picture.PixOffset(x, y):],
				[]byte{row[3*x], row[3*x+1], row[3*x+2], 255})
		}
	}
	return picture, nil
}
