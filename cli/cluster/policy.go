package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
)

// NewPolicy returns the "policy" commands.
func NewPolicy(s *cli.Shell) *cobra.Command {
	c := cli.Noun("policy", "Show and set how workers are ranked", newPolicyShow(s), newPolicySet(s), newPolicyShadow(s), newPolicyUnset(s))
	c.Aliases = []string{"policies"}
	return c
}

func newPolicyShow(s *cli.Shell) *cobra.Command {
	var region bourse.Region
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the policies, and how they differ from shadow policies",
		Long: `Show the policies that rank workers, and the shadow policies that the ranking is
compared with. Without a policy, workers are ranked by the built-in curves.

The comparison covers the orders that the answering broker has decided since it started,
or since one of the two policies was last replaced. An order counts if at least two
workers were willing to fill it. It differs if the shadow policy scores another worker
higher than the one that was ranked first. GAIN is the mean difference between its
scores of the two workers, from 0 to 1, over all compared orders. To see a single order,
use "bourse order show".`,
		Example: "  bourse policy show\n  bourse policy show --region gru --json",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.CheckFilters(c.Context(), region, ""); err != nil {
				return err
			}
			list, err := s.Client().Policies(c.Context())
			if err != nil {
				return err
			}
			if region != "" {
				list.Policies = slices.DeleteFunc(list.Policies, func(p machinesapi.Policy) bool { return p.Region != region && p.Region != "" })
				list.Comparisons = slices.DeleteFunc(list.Comparisons, func(c machinesapi.PolicyComparison) bool { return c.Region != region })
			}
			return printPolicies(s, &list)
		},
	}
	bindPolicyRegion(s, c, &region, "only the policies of this `region` and of all regions")
	return c
}

func printPolicies(s *cli.Shell, list *machinesapi.PolicyList) error {
	if s.JSON {
		return s.PrintJSON(list)
	}
	if len(list.Policies) == 0 {
		_, err := fmt.Fprintln(s.Err, s.WithProgramName("no policies, so workers are ranked by the built-in curves; set one with: bourse policy set FILE"))
		return err
	}
	t := cli.NewTable("REGION", "USE", "POLICY", "SET", "BY")
	for i := range list.Policies {
		p := &list.Policies[i]
		t.Row(policyRegion(p.Region), policyUse(p.Shadow), policyName(p), cli.Clock(p.SetAt, s.Now()), cmp.Or(p.SetBy, "-"))
	}
	if err := t.Write(s.Out); err != nil || len(list.Comparisons) == 0 {
		return err
	}
	fmt.Fprintln(s.Out)
	t = cli.NewTable("REGION", "RANKED BY", "COMPARED WITH", "ORDERS", "DIFFERING", "GAIN").Numbers(3, 4, 5)
	for _, c := range list.Comparisons {
		t.Row(string(c.Region), cmp.Or(c.Ranking, "built-in curves"), c.Policy, fmt.Sprint(c.Orders), fmt.Sprint(c.Differing), fmt.Sprintf("%.3f", c.Gain))
	}
	return t.Write(s.Out)
}

func newPolicySet(s *cli.Shell) *cobra.Command {
	return policySetter(s, false, &cobra.Command{
		Use:   "set FILE",
		Short: "Rank workers by a policy",
		Long: `Rank workers by the policy in a JSON file, or on standard input if FILE is -. All
brokers use it within about a second. A policy starts from a base, and replaces some of
its curves:

  {"name": "gpus-first", "base": "default",
   "curves": {"resources": {"gpu.*": {"weight": 8, "points": [[0, 0], [1, 1]]}},
              "load": {"weight": 0}}}

Bases: default (the built-in curves), best-fit (the fullest worker), spread (the
emptiest worker) and random. docs/placement.md describes the curves. A policy changes
only which worker is tried first, never whether an order is filled.`,
		Example: "  bourse policy set packed.json\n  bourse policy set packed.json --region gru",
	})
}

func newPolicyShadow(s *cli.Shell) *cobra.Command {
	return policySetter(s, true, &cobra.Command{
		Use:   "shadow FILE",
		Short: "Compare every order's ranking with that of a second policy",
		Long: `Rank the workers of every order by a second policy as well, and record how the two
rankings differ ("bourse policy show", "bourse order show"). This does not affect which
worker is chosen. The file has the form that "bourse policy set" accepts.`,
		Example: "  bourse policy shadow packed.json --region gru\n  bourse policy show",
	})
}

func policySetter(s *cli.Shell, shadow bool, c *cobra.Command) *cobra.Command {
	var region bourse.Region
	c.Args, c.ValidArgsFunction = cli.Exactly(1), completeFile
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := readPolicy(c.Context(), s, args[0])
		if err != nil {
			return err
		}
		p, err := s.Client().Operator().SetPolicy(c.Context(), machinesapi.SetPolicy{Region: region, Shadow: shadow, Policy: text})
		if err != nil {
			return err
		}
		if err := printPolicy(s, &p, map[bool]string{false: "workers are ranked by ", true: "the ranking is compared with "}[shadow]+policyName(&p)); err != nil {
			return err
		}
		noteUnknownResources(c.Context(), s, &p)
		return nil
	}
	bindPolicyRegion(s, c, &region, "only in this `region` (default: in all regions without a policy of their own)")
	return c
}

// noteUnknownResources warns if a policy names resources that no worker in its region has, because the names may be
// misspelled. It prints nothing if it cannot list the workers' resources.
func noteUnknownResources(ctx context.Context, s *cli.Shell, p *machinesapi.Policy) {
	workers, err := s.Client().Workers(ctx)
	if err != nil {
		return
	}
	known := map[bourse.Resource]bool{market.AnyGPU: true, market.AnyResource: true}
	for i := range workers {
		if p.Region != "" && workers[i].Region != p.Region {
			continue
		}
		if workers[i].Facts == nil { // it may have any resource
			return
		}
		for _, a := range workers[i].Facts.Accounts {
			known[a.Resource] = true
		}
	}
	var doc struct {
		Curves struct {
			Resources map[bourse.Resource]any `json:"resources"`
		} `json:"curves"`
	}
	if err := json.Unmarshal(p.Policy, &doc); err != nil {
		return
	}
	for _, r := range slices.Sorted(maps.Keys(doc.Curves.Resources)) {
		if !known[r] {
			s.Note("no worker has resource " + bourse.Quoted(string(r)) + ", so its curve has no effect now")
		}
	}
}

// completeFile completes the first argument with file names.
func completeFile(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// maxPolicyFile limits how much of a policy file is read, in bytes. It exceeds the brokers' own limit, so brokers
// reject files that are not read to the end.
const maxPolicyFile = 1 << 20

// readPolicy reads and checks a policy's document.
func readPolicy(ctx context.Context, s *cli.Shell, path string) ([]byte, error) {
	read := func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxPolicyFile)) }
	var text []byte
	var err error
	if path == "-" {
		path = "standard input"
		text, err = s.ReadInput(ctx, read)
	} else {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			text, err = read(f)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read policy: %w", err)
	}
	p, err := market.ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p.Text, nil
}

func newPolicyUnset(s *cli.Shell) *cobra.Command {
	var region bourse.Region
	var shadow bool
	c := &cobra.Command{
		Use:   "unset",
		Short: "Remove a policy, or end the comparison with a shadow policy",
		Long: `Remove the policy of a region, or the policy of all regions without one of their own.
Workers are then ranked by the policy of all regions or, if there is none, by the
built-in curves.`,
		Example: "  bourse policy unset --region gru\n  bourse policy unset --shadow",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := s.Client().Operator().UnsetPolicy(c.Context(), region, shadow)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse policy show")
			}
			if err != nil {
				return err
			}
			return printPolicy(s, &p, "no longer used: "+policyName(&p))
		},
	}
	bindPolicyRegion(s, c, &region, "`region` whose policy is removed (default: the policy of all regions)")
	c.Flags().BoolVar(&shadow, "shadow", false, "remove the shadow policy")
	return c
}

func bindPolicyRegion(s *cli.Shell, c *cobra.Command, region *bourse.Region, usage string) {
	c.Flags().StringVarP((*string)(region), "region", "r", "", usage)
	cli.CompleteFlag(c, "region", func(ctx context.Context) ([]cobra.Completion, error) {
		list, err := s.Client().Regions(ctx)
		var out []cobra.Completion
		for _, r := range list.Regions {
			out = append(out, string(r.Code))
		}
		return out, err
	})
}

func printPolicy(s *cli.Shell, p *machinesapi.Policy, says string) error {
	if s.JSON {
		return s.PrintJSON(p)
	}
	_, err := fmt.Fprintf(s.Out, "%s  %s\n", policyRegion(p.Region), says)
	return err
}

func policyRegion(r bourse.Region) string {
	if r == "" {
		return "all regions"
	}
	return string(r)
}

func policyUse(shadow bool) string {
	if shadow {
		return "shadow"
	}
	return "rank"
}

// policyName formats a policy's name and version. The name is unknown if the policy comes from another
// release and this broker does not support it.
func policyName(p *machinesapi.Policy) string {
	if p.Name == "" {
		return "unknown (not supported by this broker)"
	}
	return cli.Clean(p.Name + "@" + p.Version)
}
