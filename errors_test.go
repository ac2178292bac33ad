package bourse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestCodeOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bourse.Code
	}{
		"nil":               {nil, ""},
		"unknown":           {io.EOF, bourse.CodeInternal},
		"deadline":          {fmt.Errorf("ask: %w", context.DeadlineExceeded), bourse.CodeTimeout},
		"canceled":          {fmt.Errorf("ask: %w", context.Canceled), bourse.CodeCanceled},
		"wrapped":           {fmt.Errorf("ask: %w", bourse.Errorf(bourse.CodeConflict, "no")), bourse.CodeConflict},
		"a code decides":    {bourse.Errorf(bourse.CodeUnavailable, "dial: %w", context.DeadlineExceeded), bourse.CodeUnavailable},
		"the first decides": {bourse.Errorf(bourse.CodeInvalid, "x: %w", bourse.Errorf(bourse.CodeConflict, "no")), bourse.CodeInvalid},
		"one of several":    {errors.Join(io.EOF, bourse.Errorf(bourse.CodeNotFound, "no")), bourse.CodeNotFound},
	} {
		if got := bourse.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCodesAreAllDifferent(t *testing.T) {
	seen := map[bourse.Code]bool{}
	for _, code := range bourse.Codes() {
		if code == "" || seen[code] {
			t.Errorf("code %q is empty or listed twice", code)
		}
		seen[code] = true
		if got := bourse.CodeOf(bourse.Errorf(code, "x")); got != code {
			t.Errorf("got code %s, want %s", got, code)
		}
	}
}

// TestMessages checks that the cause of an internal error stays in the log, and that a text does
// not contain the same cause twice.
func TestMessages(t *testing.T) {
	wrapped := bourse.Errorf(bourse.CodeUnavailable, "store: %w", io.EOF)
	if !errors.Is(wrapped, io.EOF) || wrapped.Error() != "store: EOF" {
		t.Errorf("got %q, wraps EOF: %t; want \"store: EOF\", which wraps EOF", wrapped, errors.Is(wrapped, io.EOF))
	}
	if got := (&bourse.Error{Code: bourse.CodeInternal, Message: "store", Err: io.EOF}).Error(); got != "store: EOF" {
		t.Errorf("got %q, want \"store: EOF\"", got)
	}
	for err, want := range map[error]string{
		io.EOF:                   "internal error",
		context.DeadlineExceeded: "context deadline exceeded",
		fmt.Errorf("secret path: %w", bourse.Errorf(bourse.CodeInvalid, "no such size")): "no such size",
	} {
		if got := bourse.MessageOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
