package volume

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// failed wraps an error of the host with what was being done, and adds a code to
// those that a caller can do something about. nil stays nil.
func failed(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(doing, args...)
	_, coded := errors.AsType[*bourse.Error](err)
	switch {
	case coded, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return bourse.Errorf(bourse.CodeInsufficient, "%s: the disk of the host is full: %w", what, err)
	case errors.Is(err, syscall.EFBIG):
		return bourse.Errorf(bourse.CodeInsufficient, "%s: more than one file can hold on the disk of the host: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// damaged is the error of an image that cannot be used: repeating does not help.
func damaged(id, how string) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "%s is damaged: %s", id, how)
}
