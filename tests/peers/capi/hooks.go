package main

import (
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// hooks are the hooks of Cluster API by name, without Discovery.
var hooks = byName(
	runtimehooksv1.BeforeClusterCreate,
	runtimehooksv1.AfterControlPlaneInitialized,
	runtimehooksv1.BeforeClusterUpgrade,
	runtimehooksv1.BeforeControlPlaneUpgrade,
	runtimehooksv1.AfterControlPlaneUpgrade,
	runtimehooksv1.BeforeWorkersUpgrade,
	runtimehooksv1.AfterWorkersUpgrade,
	runtimehooksv1.AfterClusterUpgrade,
	runtimehooksv1.BeforeClusterDelete,
	runtimehooksv1.GeneratePatches,
	runtimehooksv1.ValidateTopology,
	runtimehooksv1.DiscoverVariables,
	runtimehooksv1.CanUpdateMachine,
	runtimehooksv1.CanUpdateMachineSet,
	runtimehooksv1.UpdateMachine,
	runtimehooksv1.GenerateUpgradePlan,
)

func byName(hooks ...runtimecatalog.Hook) map[string]runtimecatalog.Hook {
	named := map[string]runtimecatalog.Hook{}
	for _, hook := range hooks {
		named[runtimecatalog.HookName(hook)] = hook
	}
	return named
}
