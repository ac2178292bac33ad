package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// MachineActor does something to a machine where it is. The worker looks after
// leases and states; its errors go to the caller as they are.
type MachineActor interface {
	// Start answers once the machine has started.
	Start(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Stop answers before the machine has stopped.
	Stop(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Restart answers once the machine has started again.
	Restart(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Destroy answers once the machine is gone.
	Destroy(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Cordon takes the machine out of service registration.
	Cordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Uncordon puts it back.
	Uncordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Signal sends a signal to the machine's main process.
	Signal(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
}

// verb is one method of MachineActor.
type verb func(context.Context, bourse.Member, bourse.MachineID, fabric.Act) (fabric.ActReply, error)

// act sends a verb to the machine's owner, with the nonce that the caller
// holds.
func (b *Broker) act(r *request, do verb, act fabric.Act) (fabric.ActReply, error) {
	to, err := b.targetOf(r)
	if err != nil {
		return fabric.ActReply{}, err
	}
	act.Nonce = r.Header.Get(machinesapi.HeaderNonce)
	ctx, cancel := context.WithTimeout(r.Context(), verbPatience)
	defer cancel()
	done, err := do(ctx, to.worker, to.id, act)
	if err == nil {
		b.fresh.note(&done.Machine)
	}
	return done, workerError(r.Context(), to.worker.ID, changing, err)
}

// actOK is act for a verb that has nothing else to tell.
func (b *Broker) actOK(w http.ResponseWriter, r *request, do verb, act fabric.Act) error {
	if _, err := b.act(r, do, act); err != nil {
		return err
	}
	return writeOK(w)
}

func (b *Broker) startMachine(w http.ResponseWriter, r *request) error {
	done, err := b.act(r, b.Workers.Start, fabric.Act{})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.StartReply{PreviousState: done.Previous})
}

// stopMachine answers at once: stopping goes on behind the reply.
func (b *Broker) stopMachine(w http.ResponseWriter, r *request) error {
	var in machinesapi.StopMachine
	if err := decode(w, r, true, &in); err != nil {
		return err
	}
	if err := checkStopTimeout(in.Timeout); err != nil {
		return err
	}
	return b.actOK(w, r, b.Workers.Stop, fabric.Act{Signal: in.Signal, Timeout: in.Timeout})
}

func (b *Broker) restartMachine(w http.ResponseWriter, r *request) error {
	force, err := queryBool(r, "force_stop")
	if err != nil {
		return err
	}
	timeout, err := queryTimeout(r, bourse.MaxStopTimeout)
	if err != nil {
		return err
	}
	act := fabric.Act{Force: force, Timeout: bourse.Duration(timeout)}
	if s := r.URL.Query().Get("signal"); s != "" {
		if act.Signal, err = bourse.ParseSignal(s); err != nil {
			return err
		}
	}
	return b.actOK(w, r, b.Workers.Restart, act)
}

func (b *Broker) signalMachine(w http.ResponseWriter, r *request) error {
	var in machinesapi.SignalMachine
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Signal == "" {
		return bourse.Errorf(bourse.CodeInvalid, "invalid signal: it is required")
	}
	return b.actOK(w, r, b.Workers.Signal, fabric.Act{Signal: in.Signal})
}

func (b *Broker) cordonMachine(w http.ResponseWriter, r *request) error {
	return b.actOK(w, r, b.Workers.Cordon, fabric.Act{})
}

func (b *Broker) uncordonMachine(w http.ResponseWriter, r *request) error {
	return b.actOK(w, r, b.Workers.Uncordon, fabric.Act{})
}

// destroyMachine answers once the machine is gone. The docs call the flag
// force, fly-go kill.
func (b *Broker) destroyMachine(w http.ResponseWriter, r *request) error {
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	kill, err := queryBool(r, "kill")
	if err != nil {
		return err
	}
	return b.actOK(w, r, b.Workers.Destroy, fabric.Act{Force: force || kill})
}

func checkStopTimeout(d bourse.Duration) error {
	if d < 0 || d > bourse.Duration(bourse.MaxStopTimeout) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid timeout: use 0 to %s", bourse.MaxStopTimeout)
	}
	return nil
}
