package transform_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"

	"github.com/hdmlp/hdmlp/internal/transform"
)

// A list of transforms is compiled once, and applied to each sample by a worker.
func ExampleCompile() {
	description, err := transform.Parse("CenterCrop(2), ToTensor()")
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := transform.Compile(description)
	if err != nil {
		fmt.Println(err)
		return
	}
	output := program.Output()
	fmt.Println(output.Shape, output.Type, output.Bytes(), "bytes")

	var sample bytes.Buffer
	if err := png.Encode(&sample, image.NewGray(image.Rect(0, 0, 4, 3))); err != nil {
		fmt.Println(err)
		return
	}
	worker := program.Worker()
	defer worker.Close()
	tensor := make([]byte, output.Bytes())
	key := transform.Key{Seed: 1, Epoch: 0, Sample: 0} // of random transforms
	fmt.Println(worker.Apply(tensor, sample.Bytes(), key))
	// Output:
	// [3 2 2] float32 48 bytes
	// <nil>
}
