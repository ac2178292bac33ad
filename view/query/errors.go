package query

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// failure contains data that helps to explain why a statement failed, beyond the error from SQLite.
type failure struct {
	ctx     context.Context //nolint:containedctx // the statement's context, which shows why the statement was interrupted
	rules   *rules
	account *account
	limits  Limits
}

// explain converts the error of a failed statement into one for the caller. Errors: invalid,
// timeout, canceled, unavailable.
func (f failure) explain(err error) error {
	if _, ok := errors.AsType[*bourse.Error](err); ok || err == nil {
		return err
	}
	if f.rules.why != "" {
		return bourse.Errorf(bourse.CodeInvalid, "%s", f.rules.why)
	}
	if f.ctx.Err() != nil {
		return f.ended(err)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultInterrupt:
		return f.ended(err)
	case sqlite.ResultNoMem:
		if f.account.refused.Load() {
			return bourse.Errorf(bourse.CodeInvalid, "the statement needs more than %d MiB of memory: request fewer rows or columns", f.limits.Memory>>20)
		}
		return bourse.Errorf(bourse.CodeInvalid, "the statement is too complex: simplify it")
	case sqlite.ResultTooBig:
		return bourse.Errorf(bourse.CodeInvalid, "a value or a row is longer than %d bytes", maxLength)
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultSchema, sqlite.ResultIOErr, sqlite.ResultCorrupt,
		sqlite.ResultNotADB, sqlite.ResultCantOpen, sqlite.ResultProtocol, sqlite.ResultReadOnly, sqlite.ResultFull, sqlite.ResultPerm:
		return unavailable(err)
	default:
		return bourse.Errorf(bourse.CodeInvalid, "%s", text(err))
	}
}

func (f failure) ended(err error) error {
	if errors.Is(context.Cause(f.ctx), errTime) {
		return bourse.Errorf(bourse.CodeTimeout, "the statement took longer than %v", f.limits.Time)
	}
	return bourse.Errorf(bourse.CodeCanceled, "the statement was interrupted: %w", err)
}

// errTime is the cancellation cause of a statement's context when the statement exceeds its time
// limit.
var errTime = errors.New("time limit exceeded")

// unavailable returns the error for a query that failed because the view's file is damaged or is
// being replaced.
func unavailable(err error) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "the view cannot be read at the moment", Err: err}
}

// text returns SQLite's message without the prefixes that the binding adds.
func text(err error) string {
	s := err.Error()
	for _, prefix := range []string{"sqlite: ", "prepare: ", "step: ", "reset: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return fmt.Sprintf("SQL: %s", strings.Replace(s, "SQL logic error: ", "", 1))
}
