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

// Warn says on standard error what of a request is not acted on.
func Warn(s *cli.Shell, warnings []bourse.Warning) {
	for _, w := range warnings {
		s.Note("warning: " + cli.Clean(w.String()))
	}
}

// Explain adds what to try after an order that was not filled, and
// shows who refused it.
func Explain(s *cli.Shell, err error, app string, order bourse.OrderID) error {
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	if !replied && bourse.CodeOf(err) == bourse.CodeCanceled {
		return afterInterrupt(s, order)
	}
	if replied {
		order = cmp.Or(reply.OrderID, order)
		if saysAll(bourse.MessageOf(err), reply.Refusals) {
			return err
		}
		if err := PrintRefusals(s, reply.Refusals); err != nil {
			return err
		}
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return cli.Hint(err, "bourse app create "+app)
	case bourse.CodeTimeout:
		return cli.Hint(err,
			"see what became of it: bourse order show "+string(order),
			"or the same again with --order-id "+string(order)+": it finds the machine if there is one")
	case bourse.CodeAlreadyExists:
		return cli.Hint(err, "another --name, or see it: bourse machine list -a "+app)
	default:
		return err
	}
}

// saysAll reports whether an order's error is all that workers said about its image: a
// table of the same sentence says no more.
func saysAll(message string, refusals []bourse.Refusal) bool {
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

// PrintRefusals shows who refused an order, to a person.
func PrintRefusals(s *cli.Shell, refusals []bourse.Refusal) error {
	if len(refusals) == 0 || s.JSON {
		return nil
	}
	return RefusalTable(refusals).Write(s.Err)
}
