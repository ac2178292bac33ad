package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// processes asks a worker itself for the pids of its started machines.
func processes(ctx context.Context, w *Server) (map[bourse.MachineID]int, error) {
	return startedOf(ctx, w, func(m *bourse.Machine) int { return m.Boot.PID })
}

// processPorts asks a worker itself for the ports of its started machines.
func processPorts(ctx context.Context, w *Server) (map[bourse.MachineID]int, error) {
	return startedOf(ctx, w, func(m *bourse.Machine) int { return m.Boot.Port })
}

func startedOf(ctx context.Context, w *Server, what func(*bourse.Machine) int) (map[bourse.MachineID]int, error) {
	proof, err := proofOf(serve.DefaultCluster)
	if err != nil {
		return nil, err
	}
	way := direct.NewOver(direct.TCP, nil, proof)
	defer way.Close()
	id := bourse.WorkerID(w.Ready.ID)
	worker := bourse.Member{ID: id, Role: bourse.RoleWorker, Address: w.Ready.API, Tag: id.Tags()[0]} // what it takes where no other has it
	machines, err := fabric.MachineList.Call(ctx, way, worker, fabric.MachinesQuery{})
	if err != nil {
		return nil, fmt.Errorf("machines of %s: %w", w.Name, err)
	}
	of := map[bourse.MachineID]int{}
	for _, m := range machines {
		if m.State == bourse.StateStarted {
			of[m.ID] = what(&m)
		}
	}
	return of, nil
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
