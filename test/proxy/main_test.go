package proxy

import (
	"fmt"
	"os"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// machineVariable is an environment variable that makes this program a machine of the kind
// that it contains.
const machineVariable = "BOURSE_TEST_MACHINE"

func TestMain(m *testing.M) {
	if kind := os.Getenv(machineVariable); kind != "" {
		if err := runMachine(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = os.Setenv("PEBBLE_VA_NOSLEEP", "1") // makes the CA of TestACME validate host names without a delay
	os.Exit(servertest.Main(m))
}
