package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// completionTimeout limits how long shell completion may take.
const completionTimeout = time.Second

// CompleteFixed completes a flag's value from a fixed list.
func CompleteFixed(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only if the flag does not exist
}

// CompleteRegions completes --region with the cluster's regions.
func (s *Shell) CompleteRegions(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("region", func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := CompletionContext(c)
		defer cancel()
		list, err := s.Client().Regions(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		out := []cobra.Completion{"any"}
		for _, r := range list.Regions {
			out = append(out, string(r.Code))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// Complete returns a function that completes a command's first argument with the results of find.
// If find fails, it offers no completions.
func Complete(find func(ctx context.Context) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return completed(c, find)
	}
}

// CompleteFlag completes a flag's value with the results of find. If find fails, it offers no
// completions.
func CompleteFlag(c *cobra.Command, flag string, find func(ctx context.Context) ([]cobra.Completion, error)) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completed(c, find)
	}) // fails only if the flag does not exist
}

func completed(c *cobra.Command, find func(ctx context.Context) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := CompletionContext(c)
	defer cancel()
	list, err := find(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// Images lists image references for completion.
func (s *Shell) Images(ctx context.Context) ([]cobra.Completion, error) {
	list, _, err := s.Client().Images(ctx, machinesapi.ImageTarget{})
	out := []cobra.Completion{bourse.ImageHost}
	for i := range list {
		if name := list[i].Ref.Repository; name != "" && list[i].Ref.Tag != "" {
			out = append(out, list[i].Ref.Registry+"/"+name+":"+list[i].Ref.Tag)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), err
}

// Apps lists app names for completion.
func (s *Shell) Apps(ctx context.Context) ([]cobra.Completion, error) {
	list, err := s.Client().Apps(ctx, "")
	out := make([]cobra.Completion, len(list))
	for i := range list {
		out[i] = string(list[i].Name)
	}
	return out, err
}

// Workers lists worker ids for completion.
func (s *Shell) Workers(ctx context.Context) ([]cobra.Completion, error) {
	list, err := s.Client().Workers(ctx)
	out := make([]cobra.Completion, len(list))
	for i := range list {
		out[i] = cobra.CompletionWithDesc(string(list[i].ID), string(list[i].Region))
	}
	return out, err
}

// CompletionContext returns a context with the timeout for completions.
func CompletionContext(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completionTimeout)
}
