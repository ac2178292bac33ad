package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewTokens returns the "token" commands.
func NewTokens(s *cli.Shell) *cobra.Command {
	c := cli.Noun("token", "Manage the tokens that authenticate clients of the API", newTokenCreate(s), newTokenList(s), newRevoke(s), newTokenJoin(s))
	c.Aliases = []string{"tokens"}
	return c
}

func api(s *cli.Shell) machinesapi.Tokens {
	return s.Client().Tokens()
}

// permissions describes what a token permits.
func permissions(t *machinesapi.Token) string {
	var what string
	switch {
	case len(t.Machines) > 0:
		what = strings.Join(texts(t.Machines), ", ") + " of " + strings.Join(texts(t.Apps), ", ")
	case len(t.Apps) > 0:
		what = strings.Join(texts(t.Apps), ", ") + " of " + t.Org
	case t.Org == machinesapi.AllOrgs:
		what = "everything"
	default:
		what = "all of " + t.Org
	}
	if t.ReadOnly {
		what += ", read-only"
	}
	return what
}

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// validity describes how long a token remains valid, or why it is not valid.
func validity(t *machinesapi.Token, now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case t.ExpiresAt == nil:
		return "valid"
	case !now.Before(*t.ExpiresAt):
		return "expired"
	}
	return "valid for " + cli.Age(t.ExpiresAt.Sub(now))
}

func isValid(t *machinesapi.Token, now time.Time) bool {
	return strings.HasPrefix(validity(t, now), "valid")
}

// findToken returns the id of the token with the given id, or of the only valid token with the
// given name. Errors: not_found; invalid if several valid tokens have the name.
func findToken(list []machinesapi.Token, word string, now time.Time) (string, error) {
	var ids []string
	for i := range list {
		if list[i].ID == word {
			return word, nil
		}
		if list[i].Name == word && isValid(&list[i], now) {
			ids = append(ids, list[i].ID)
		}
	}
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", cli.Hint(bourse.Errorf(bourse.CodeNotFound, "no valid token has the name or id %s", bourse.Quoted(word)), "bourse token list")
	}
	return "", bourse.Errorf(bourse.CodeInvalid, "%d tokens are named %s: use an id, %s", len(ids), bourse.Quoted(word), strings.Join(ids, " or "))
}

// completeToken completes arguments with the ids of valid tokens.
func completeToken(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, err := api(s).List(ctx)
		list = slices.DeleteFunc(list, func(t machinesapi.Token) bool { return !isValid(&t, s.Now()) })
		out := make([]cobra.Completion, len(list))
		for i := range list {
			out[i] = cobra.CompletionWithDesc(list[i].ID, cli.Clean(list[i].Name)+": "+permissions(&list[i]))
		}
		return out, err
	})
}
