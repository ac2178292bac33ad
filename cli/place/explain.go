package place

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Warn prints the warnings about a request to standard error.
func Warn(s *cli.Shell, warnings []bourse.Warning) {
	for _, w := range warnings {
		s.Note("warning: " + cli.Clean(w.String()))
	}
}

// Explain prints the refusals of an order that was not filled, and returns err with
// hints.
func Explain(s *cli.Shell, err error, app string, order bourse.OrderID) error {
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	if !replied && bourse.CodeOf(err) == bourse.CodeCanceled {
		return afterInterrupt(s, order)
	}
	if replied {
		order = cmp.Or(reply.OrderID, order)
		if repeatsRefusals(bourse.MessageOf(err), reply.Refusals) {
			return err
		}
		if err := PrintRefusals(s, reply.Refusals); err != nil {
			return err
		}
	}
	switch code := bourse.CodeOf(err); {
	case code == bourse.CodeNotFound && bourse.MessageOf(err) == machinesapi.NoAppText: // the missing object could also be an image or a reservation
		return cli.Hint(err, "bourse app create "+app)
	case code == bourse.CodeTimeout:
		return cli.Hint(err, "bourse order show "+string(order), "the same command with --order-id "+string(order)+", which returns the machine if it exists")
	case code == bourse.CodeAlreadyExists:
		return cli.Hint(err, "bourse machine list -a "+app)
	default:
		return err
	}
}

// repeatsRefusals reports whether an order's error message already contains everything that workers
// reported about the image. A table of refusals would then only repeat it.
func repeatsRefusals(message string, refusals []bourse.Refusal) bool {
	other := func(r bourse.Refusal) bool {
		switch r.Reason {
		case bourse.RefusedNoImage, bourse.RefusedRegistry, bourse.RefusedProgram:
			return r.Detail == "" || !strings.Contains(message, r.Detail)
		default:
			return true
		}
	}
	return len(refusals) > 0 && !slices.ContainsFunc(refusals, other)
}

// PrintRefusals prints a table of refusals to standard error. With --json, it prints
// nothing.
func PrintRefusals(s *cli.Shell, refusals []bourse.Refusal) error {
	if len(refusals) == 0 || s.JSON {
		return nil
	}
	return refusalTable(refusals).Write(s.Err)
}
