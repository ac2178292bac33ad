package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionPatience bounds how long the Tab key may take.
const completionPatience = time.Second

// fixed completes a flag from a list.
func fixed(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}

// completeRegions completes --region from the regions of the exchange.
func (s *shell) completeRegions(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("region", func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := completing(c)
		defer cancel()
		list, err := s.client().Regions(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		out := []cobra.Completion{"any"}
		for _, r := range list.Regions {
			out = append(out, string(r.Code))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeMachine completes the first argument from the app's machines.
func (s *shell) completeMachine(app *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := completing(c)
		defer cancel()
		list, err := s.listMachines(ctx, *app)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, m := range list {
			out = append(out, cobra.CompletionWithDesc(string(m.ID), m.Name+", "+string(m.State)+" in "+string(m.Region)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWorker completes the first argument from the workers.
func (s *shell) completeWorker(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := completing(c)
	defer cancel()
	list, err := s.client().Workers(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []cobra.Completion
	for _, w := range list {
		out = append(out, cobra.CompletionWithDesc(string(w.ID), string(w.Region)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func completing(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completionPatience)
}
