package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// benchThousand: a thousand members in virtual time, 50 changes a second, with
// a packet of a hundred lost and each 30 to 70 ms on its way. Virtual time is
// for tests only, so it is one, whose figures are read.
func benchThousand(ctx context.Context, lab *Lab, out Figures) error {
	file := filepath.Join(lab.dir, "thousand.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=9m", "-run=^TestVisibleToAll$/^given$", "./view/gossip/gossiptest",
		"-args", "-members=1000", "-changes=200", fmt.Sprint("-rate=", changesSecond), "-figures="+file)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var m gossiptest.Measured
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, m)
	if m.Members != 1000 || m.Unseen > 0 {
		return fmt.Errorf("%d changes were not seen by all %d", m.Unseen, m.Members)
	}
	out["view_1000_p50_ms"], out["view_1000_p99_ms"] = ms(m.P50), ms(m.P99)
	out["view_bytes_per_change_member_1000"] = m.Bytes()
	return nil
}
