package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// processes asks a worker itself for the pids of its started machines.
func processes(ctx context.Context, w *Server) (map[bourse.MachineID]int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Ready.API+"/worker/machines", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Bourse-To", w.Ready.ID)
	proof, err := proofOf(cli.DefaultCluster)
	if err != nil {
		return nil, err
	}
	proof.ShowTo(req.Header, w.Ready.API)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var machines []bourse.Machine
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, codec.Unmarshal(body, &machines)); err != nil {
		return nil, fmt.Errorf("machines of %s: %s: %w", w.Name, resp.Status, err)
	}
	pids := map[bourse.MachineID]int{}
	for _, m := range machines {
		if m.State == bourse.StateStarted {
			pids[m.ID] = m.Boot.PID
		}
	}
	return pids, nil
}

// proofOf is what the servers of a cluster on loopback show one another.
func proofOf(cluster string) (admission.Proof, error) {
	secret, err := loopback.SecretOf(os.Getenv, cluster)
	return admission.Proof{Cluster: cluster, Bearer: string(secret)}, err
}

// anonymous returns the bytes of anonymous memory of a worker's own processes:
// the daemon, and the supervisor that serves its directory. Pages of the
// program's file are shared by all its processes, and not counted.
func anonymous(w *Server) (int64, error) {
	total, supervisors := int64(0), 0
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if pid == w.Ready.PID {
			n, err := anonymousOf(pid)
			if err != nil {
				return 0, err
			}
			total += n
			continue
		}
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		words := strings.Split(string(cmdline), "\x00")
		if err == nil && len(words) > 2 && words[1] == "supervisor" && strings.Contains(string(cmdline), "/"+w.Name+"/") {
			n, err := anonymousOf(pid)
			if err != nil {
				return 0, err
			}
			total += n
			supervisors++
		}
	}
	if supervisors != 1 {
		return 0, fmt.Errorf("found %d supervisors of %s, want 1", supervisors, w.Name)
	}
	return total, nil
}

// anonymousOf returns the bytes of anonymous memory of a process.
func anonymousOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nAnonymous:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("the anonymous memory of process %d is not shown", pid)
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}
