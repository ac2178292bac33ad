package cluster

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/store"
)

var errNoData = bourse.Errorf(bourse.CodeInvalid, "--data is required: the worker's data directory")

func newStore(s *cli.Shell) *cobra.Command {
	return cli.Noun("store", "Check and recover the store of a worker that is not running", newStoreCheck(s), newStoreRecover(s))
}

func newStoreCheck(s *cli.Shell) *cobra.Command {
	var data string
	c := &cobra.Command{
		Use:   "check --data DIRECTORY",
		Short: "Check a worker's store for damage",
		Long: `Read every page and record of a worker's store (worker.db and its log) and report
damage, without changing anything. The worker must not be running.

The exit status is 0 if nothing is damaged, and 1 otherwise.`,
		Example: `  bourse worker store check --data /var/lib/bourse/worker`,
		Args:    cli.Exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if data == "" {
				return errNoData
			}
			r, err := store.Check(data)
			if err != nil {
				return err
			}
			if err := printStore(s, &r); err != nil || len(r.Damage) == 0 {
				return err
			}
			return cli.AfterResult(cli.Hint(bourse.Errorf(bourse.CodeInternal, "the store is damaged"), "bourse worker store recover --data "+data))
		},
	}
	c.Flags().StringVar(&data, "data", "", "worker's data `directory` (required)")
	return c
}

func newStoreRecover(s *cli.Shell) *cobra.Command {
	var data string
	var yes bool
	c := &cobra.Command{
		Use:   "recover --data DIRECTORY",
		Short: "Create a new store from the intact records of a damaged one",
		Long: `Create a new worker.db from all intact records of a damaged store. The damaged files
are renamed, with a timestamp. The worker must not be running.

Lost records cannot be restored. An order whose record is lost may be filled again
if its client repeats it. If log records are lost, other records may be out of
date: a machine that was destroyed recently may reappear. If machines are running
without a record, the worker lists them and starts only with --forget-machines.`,
		Example: `  bourse worker store recover --data /var/lib/bourse/worker`,
		Args:    cli.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if data == "" {
				return errNoData
			}
			if err := s.Confirm(c.Context(), yes, "create a new store from the intact records in "+data); err != nil {
				return err
			}
			r, err := store.Recover(data, s.Now())
			if err != nil {
				return err
			}
			return printStore(s, &r)
		},
	}
	c.Flags().StringVar(&data, "data", "", "worker's data `directory` (required)")
	cli.BindYes(c, &yes)
	return c
}

func printStore(s *cli.Shell, r *store.Report) error {
	if s.JSON {
		if r.Damage == nil {
			r.Damage = []string{}
		}
		return s.PrintJSON(r)
	}
	fmt.Fprintf(s.Out, "%s of machines, %d records in total in worker.db, %d changes in the log\n", cli.Count(r.Machines, "record"), r.Keys, r.Records)
	for _, d := range r.Damage {
		fmt.Fprintln(s.Out, "damaged: "+d)
	}
	for _, l := range r.Lost {
		fmt.Fprintln(s.Out, "lost: "+l)
	}
	if len(r.Saved) > 0 {
		fmt.Fprintln(s.Out, "kept: "+strings.Join(r.Saved, ", "))
	}
	if len(r.Damage) == 0 {
		fmt.Fprintln(s.Out, "no damage found")
	}
	return nil
}
