package replication

import (
	"errors"
	"log/slog"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// refusals counts and logs messages that were refused.
type refusals struct {
	count *counters
	quiet *quiet.Lines
	log   *slog.Logger
}

// add counts a refused message and logs it at a limited rate. It ignores CodeUnavailable, which the
// view returns for its own problems, because these are not the sender's fault.
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
		r.log.Warn("message about the view refused", slog.String("member", string(from)), slog.Any("err", err))
	}
}
