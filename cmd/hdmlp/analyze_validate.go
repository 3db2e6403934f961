package main

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/analysis"
	"github.com/hdmlp/hdmlp/internal/instrument"
)

// compare runs the script with hdmlp's loader, and compares a later epoch with what is predicted of
// it. What cannot be compared is noted.
func (o *scriptOptions) compare(ctx context.Context, m *analysis.Measured) error {
	note := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		o.tell("not validated: " + text)
		m.Notes = append(m.Notes, analysis.Note{About: "validation", Text: text})
	}
	r, err := analysis.Analyze(ctx, m, analysis.Options{})
	if err != nil {
		return err
	}
	predicted := predictedEpoch(m, r)
	if predicted == 0 {
		note("nothing is predicted of this job with hdmlp's loader")
		return nil
	}
	o.tell("running the script again, with hdmlp's loader")
	record, exit, err := instrument.Run(ctx, instrument.Options{
		Command: o.command, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
		AsIs: o.time / 2, Package: pythonPackage(), Validate: true, Progress: func(string) {},
	})
	if err != nil {
		return err
	}
	if cut, err := judge(record, exit); cut != nil || err != nil {
		note("%v", cmp.Or(err, cut))
		return nil
	}
	again := record.Measured()
	if again.Loader.Name != analysis.HDMLP {
		note("the daemon does not serve the dataset")
		return nil
	}
	epoch := float64(m.Dataset.Samples) / float64(m.Nodes)
	v := &analysis.Validation{
		Predicted: predicted, Measured: epoch / again.AsIs.Median, Low: epoch / again.AsIs.High,
		High: epoch / again.AsIs.Low,
	}
	v.Error = v.Predicted/v.Measured - 1
	m.Validation = v
	o.tell(fmt.Sprintf("validated: a later epoch with hdmlp's loader was predicted to take %s, and "+
		"took %s (%s to %s): the prediction is off by %.1f %%", seconds(v.Predicted),
		seconds(v.Measured), seconds(v.Low), seconds(v.High), 100*math.Abs(v.Error)))
	return nil
}

// predictedEpoch returns how long a later epoch takes with hdmlp's loader and nothing else changed,
// in seconds; 0: nothing says it.
func predictedEpoch(m *analysis.Measured, r *analysis.Report) float64 {
	if r.Missing != nil {
		return 0
	}
	if m.Loader.Name == analysis.HDMLP {
		return cmp.Or(r.Now.Later, r.Now.Epoch)
	}
	for _, option := range r.Remedies {
		if option.Switch {
			return cmp.Or(option.Simulated, option.Epoch)
		}
	}
	return 0
}
