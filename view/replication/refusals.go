package replication

import (
	"errors"
	"log/slog"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// refusals counts and logs what is not taken in.
type refusals struct {
	count *counters
	quiet *quiet.Lines
	log   *slog.Logger
}

// add counts what was not taken in, and logs it rarely. Errors of the view
// itself say nothing about the other one.
func (r *refusals) add(err error, from bourse.WorkerID) {
	reason := refusedShape
	if why, ok := errors.AsType[refusal](err); ok {
		reason = why
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeForbidden:
		reason = refusedForged
	case bourse.CodeUnavailable:
		return
	default:
	}
	switch reason {
	case refusedForged:
		r.count.forged.Add(1)
	case refusedVersion:
		r.count.otherVersion.Add(1)
	case refusedCluster:
		r.count.otherCluster.Add(1)
	default:
		r.count.malformed.Add(1)
	}
	if r.quiet.Due(string(reason)) {
		r.log.Warn("what another server says of the view is refused", slog.String("member", string(from)), slog.Any("err", err))
	}
}
