package app

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// TestDestroySuggestsACommandThatWorks checks that the command suggested after a
// refused destroy is not refused again: it includes --yes if that was given.
func TestDestroySuggestsACommandThatWorks(t *testing.T) {
	line := clitest.Of(newDestroy)
	refused := clitest.Failure(bourse.CodeFailedPrecondition, "machines of the app run (1)")
	got := line.Against(t, refused, "destroy", "shop", "--yes")
	if got.Code != 5 || !strings.Contains(got.Err, "bourse app destroy shop --force --yes\n") {
		t.Errorf("exit status %d, %q", got.Code, got.Err)
	}
	got = line.AtTerminal(t, refused, "y\n", "destroy", "shop")
	if got.Code != 5 || !strings.Contains(got.Err, "bourse app destroy shop --force\n") {
		t.Errorf("on a terminal: exit status %d, %q", got.Code, got.Err)
	}
}
