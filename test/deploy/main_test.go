package deploy

import (
	"fmt"
	"os"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// Environment variables that make this program do something other than run the tests.
const (
	machineVariable = "BOURSE_TEST_VERSION" // run a machine of this version
	clientVariable  = "BOURSE_TEST_CLIENT"  // run a client that executes the errand in this file
)

func TestMain(m *testing.M) {
	var run func() error
	switch {
	case os.Getenv(machineVariable) != "":
		run = runMachine
	case os.Getenv(clientVariable) != "":
		run = runClient
	default:
		os.Exit(servertest.Main(m))
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
