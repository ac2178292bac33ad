package cli

import "github.com/spf13/cobra"

func (s *shell) machine() *cobra.Command {
	c := noun("machine", "Run, see and end machines",
		s.machineRun(), s.machineList(), s.machineStatus(), s.machineStart(), s.machineStop(), s.machineRestart(),
		s.machineSignal(), s.machineExec(), s.machineForward(), s.machineStats(), s.machineLogs(), s.machineWait(), s.machineDestroy())
	c.Aliases = []string{"machines", "m"}
	return c
}
