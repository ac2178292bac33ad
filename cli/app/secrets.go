package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewSecrets returns the "secrets" commands.
func NewSecrets(s *cli.Shell) *cobra.Command {
	c := cli.Noun("secrets", "Manage secrets, which machines receive in their environment", newSet(s), newSecretsList(s), newUnset(s), newImport(s))
	c.Aliases = []string{"secret"}
	return c
}

func secretsOf(s *cli.Shell, app string) machinesapi.AppSecrets {
	return s.Client().Secrets(bourse.AppName(app))
}

// change sets each of the named secrets to its value, or removes it if the value is nil.
// It reports the changes in the order in which names lists the secrets.
func change(ctx context.Context, s *cli.Shell, app string, names []string, values map[string]*string) error {
	out, err := secretsOf(s, app).Change(ctx, values)
	if err != nil {
		return hintSecrets(err, app)
	}
	if s.JSON {
		return s.PrintJSON(out)
	}
	for _, name := range names {
		done := "set"
		if values[name] == nil {
			done = "removed"
		}
		if _, err := fmt.Fprintf(s.Out, "%s  %s\n", cli.Clean(name), done); err != nil {
			return err
		}
	}
	s.Note("running machines keep their old secrets until they are restarted: bourse machine restart -a " + app + " MACHINE")
	return nil
}

// hintSecrets adds a hint to an error from the API.
func hintSecrets(err error, app string) error {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return cli.Hint(err, "bourse app create "+app)
	case bourse.CodeFailedPrecondition:
		return cli.Hint(err, "bourse serve broker --credentials DIR, with the secrets.key of bourse credentials init")
	default:
		return err
	}
}

// completeSecret completes arguments with the names of an app's secrets.
func completeSecret(s *cli.Shell, app *string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := cli.CompletionContext(c)
		defer cancel()
		list, err := secretsOf(s, *app).List(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		out := make([]cobra.Completion, len(list.Secrets))
		for i := range list.Secrets {
			out[i] = list.Secrets[i].Name
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
