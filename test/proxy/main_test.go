package proxy

import (
	"fmt"
	"os"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// machineVariable makes a process of this program a machine of the given kind.
const machineVariable = "BOURSE_TEST_MACHINE"

func TestMain(m *testing.M) {
	if kind := os.Getenv(machineVariable); kind != "" {
		if err := runMachine(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = os.Setenv("PEBBLE_VA_NOSLEEP", "1") // the CA of TestACME validates hosts without delay
	os.Exit(servertest.Main(m))
}
