package volume

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// failed adds a description of the failed operation to err, and a code if the caller can react to
// the error. It returns nil if err is nil.
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
		return bourse.Errorf(bourse.CodeInsufficient, "%s: the host's disk is full: %w", what, err)
	case errors.Is(err, syscall.EFBIG):
		return bourse.Errorf(bourse.CodeInsufficient, "%s: the host's file system does not support files of this size: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// damaged returns the error for an unusable image. Repeating the operation does not help.
func damaged(id, how string) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "%s is damaged: %s", id, how)
}
