package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/instrument"
	"github.com/hdmlp/hdmlp/internal/study/learning"
)

func newLearnCommand() *cobra.Command {
	var items int
	cmd := &cobra.Command{
		Use:   "learn [flags] -- COMMAND [ARGUMENTS]",
		Short: "Propose which files of a script's datasets hdmlp can serve",
		Long: `Propose what to give ht.DataLoader(dataset, files=...): a function from an
item's index to the files that the item is made of.

It runs the command, such as python train.py, which need not be changed, to its
end, and looks at items of its map-style datasets while torch's loader, or
hdmlp's, makes them, in the process and in workers. It prints for each dataset
which files an item opens; what varies when an item is made again; the function,
if the paths follow from attributes of the dataset, which the function calls
"dataset"; what files= would serve, as a share of files and bytes; and what it
would not serve, why, and what to do. A function is printed only if it was
evaluated for each item that was looked at, and raised no exception.

It serves nothing, and changes nothing in the program: use few epochs.

Files that are opened below Python (by C libraries) are seen if attributes of
the dataset have their paths, and those of cv2.imread and soundfile always. Of
others only the bytes are counted that the item read, and nothing of files that
are mapped into memory.

The script's output is passed on, and its exit status is that of this command.
The proposal comes on stderr, after what the script printed. With --json, it is
printed on stdout, and the script's output goes to stderr.

EXIT STATUS
  that of the command; 2 also for wrong input, 130 if interrupted`,
		Example: `  hdmlp learn -- python train.py --epochs 2
  hdmlp learn --items 50 --json -- torchrun --nproc-per-node 4 train.py`,
		Args: checkLearned,
		RunE: func(cmd *cobra.Command, args []string) error {
			if items < 1 || items > 1_000_000 {
				return badInput("--items is %d; allowed: 1 to 1000000", items)
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			return learn(cmd, args, items, asJSON)
		},
	}
	cmd.Flags().IntVar(&items, "items", 200, "how many items of each dataset are looked at")
	return cmd
}

// checkLearned checks that there is a command.
func checkLearned(cmd *cobra.Command, args []string) error {
	return checkScript(cmd, args, "as in: hdmlp learn -- python train.py", "")
}

// learned is what --json prints.
type learned struct {
	Command  []string          `json:"command"`
	Status   int               `json:"exit_status"`
	Datasets []learning.Answer `json:"datasets"`
	Notes    []string          `json:"notes"`
}

// learn runs a script, and prints what was learned.
func learn(cmd *cobra.Command, args []string, items int, asJSON bool) error {
	// A reader of stderr that goes away ends the script, and not this process, which cleans up.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGPIPE)
	defer stop()
	errs := cmd.ErrOrStderr()
	stdout, show := fileOf(cmd.OutOrStdout()), errs
	if asJSON {
		stdout, show = errs, cmd.OutOrStdout()
	}
	var seen learning.Seen
	exit, pythons, refused, err := instrument.Learn(ctx, instrument.LearnOptions{
		Command: args, Stdin: cmd.InOrStdin(), Stdout: stdout, Stderr: errs, Items: items,
		Package: pythonPackage(), Take: seen.Take,
		Progress: func(text string) { fmt.Fprintln(errs, "hdmlp learn: "+human.Text(text)) },
	})
	interrupted := err != nil && errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return err
	}
	out := learned{Command: args, Status: exit.Status, Datasets: seen.Answers(), Notes: []string{}}
	switch {
	case pythons == 0:
		out.Notes = append(out.Notes, "no Python process of the command could be looked into: it must "+
			"start Python, without its options -I, -E and -S, which hide PYTHONPATH")
	case refused != "":
		out.Notes = append(out.Notes, refused)
	case len(out.Datasets) == 0:
		out.Notes = append(out.Notes, "no item of a map-style dataset was made by "+
			"torch.utils.data.DataLoader or by hdmlp's loaders: nothing can be proposed")
	}
	if asJSON {
		err = printJSON(show, out)
	} else {
		printLearned(show, out)
		err = nil
	}
	switch {
	case err != nil:
		return err
	case interrupted:
		return context.Canceled
	case exit.Status != 0:
		return statusError{exit.Status, fmt.Errorf("the command ended with exit status %d",
			exit.Status)}
	}
	return nil
}
