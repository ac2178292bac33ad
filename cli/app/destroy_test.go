package app

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// TestDestroySuggestsACommandThatWorks checks that the command that is suggested after a refused destroy would not be
// refused for the same reason: it includes --yes if --yes was given.
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
