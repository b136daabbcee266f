-------------------------------- MODULE Start --------------------------------
(***************************************************************************)
(* Start frontiers that are loaded piece by piece (docs/spec/models.md).   *)
(*                                                                         *)
(* A frontier says, for each leaf (a publisher's numbering), which numbers *)
(* it covers. A joiner is given the root of a member's frontier, and loads *)
(* its leaves one by one. What a leaf's start covers is before the         *)
(* subscription; all else is due to it. The trace says each leaf's start   *)
(* once it is loaded, and a checker knows no more than that.               *)
(*                                                                         *)
(* Nodes go and come back, with their disk or without. The number of such  *)
(* changes is bounded, so nodes are stable from some time on.              *)
(*                                                                         *)
(* Each part of the rule can be switched off.                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    N,        \* Nodes are 0..N-1; 0 creates the topic and publishes.
    Leaves,   \* The numberings.
    Max,      \* Events of each numbering.
    Changes,  \* Nodes that go, come back, or lose their disk.
    Liars,    \* Members that answer a joiner with a leaf of their own making.
    Pin,      \* A root is kept until its joiners, or another member, have all of it.
    Proof,    \* A joiner takes a leaf only if it belongs to the root.
    Whole,    \* Who has not loaded its root hands on the root; else what it has loaded.
    Park,     \* Events of a leaf that is not loaded wait; else they are delivered.
    Keep,     \* Where a root is lost, leaves that are loaded keep their start.
    Durable,  \* The root and the starts are on the disk before anything is delivered.
    Alone     \* Where nobody has a frontier to give, the open leaves start at nothing.

Nodes == 0 .. N - 1
Numbers == 1 .. Max
Nothing == [l \in Leaves |-> {}]
Open == Numbers \cup {0}  \* No start: no set of numbers holds 0.
Unknown == [l \in Leaves |-> Open]

VARIABLES
    up,         \* Nodes that are there.
    root,       \* The frontier each node was given as a root, or Unknown.
    start,      \* Each node's leaves that are loaded; others are Open.
    log,        \* Events that a node has delivered, by leaf.
    parked,     \* Events that wait for their leaf, in memory.
    pins,       \* Roots that a node can give the leaves of, in memory.
    left,       \* Changes left.
    told,       \* What the trace of a node's subscription says of its starts.
    given,      \* What the frontier of the giver covered; nobody sees it.
    lost        \* Nodes whose root nobody could give for a while; nobody sees it.

disk == <<root, start, log>>
memory == <<parked, pins>>
seen == <<told, given, lost>>
vars == <<up, left, disk, memory, seen>>

IsWhole(n) == \A l \in Leaves : start[n][l] # Open
HasRoot(n) == root[n] # Unknown
Covers(n) == [l \in Leaves |-> IF start[n][l] = Open THEN {} ELSE start[n][l] \cup log[n][l]]
CanGive(m, r) == m \in up /\ r \in pins[m]
Reachable(r) == \E m \in Nodes : CanGive(m, r)
IsLoading(n) == HasRoot(n) /\ ~IsWhole(n)

-----------------------------------------------------------------------------
(* Events. *)

Publish(l) ==
    /\ 0 \in up /\ IsWhole(0) /\ start[0][l] = {}
    /\ \E k \in Numbers :
        /\ log[0][l] = 1 .. k - 1
        /\ log' = [log EXCEPT ![0][l] = @ \cup {k}]
    /\ UNCHANGED <<up, left, root, start, memory, seen>>

(* A member has an event from another: live, or fetched. *)
Pass(m) ==
    /\ m \in up
    /\ \E n \in up, l \in Leaves : \E k \in log[n][l] :
        /\ start[m][l] # Open
        /\ k \notin start[m][l] \cup log[m][l]
        /\ log' = [log EXCEPT ![m][l] = @ \cup {k}]
    /\ UNCHANGED <<up, left, root, start, memory, seen>>

(* An event comes live whose leaf is not loaded. It may as well be dropped. *)
Early(m) ==
    /\ m \in up
    /\ \E n \in up, l \in Leaves : \E k \in log[n][l] :
        /\ HasRoot(m) /\ start[m][l] = Open
        /\ k \notin log[m][l] \cup parked[m][l]
        /\ IF Park
           THEN parked' = [parked EXCEPT ![m][l] = @ \cup {k}] /\ UNCHANGED log
           ELSE log' = [log EXCEPT ![m][l] = @ \cup {k}] /\ UNCHANGED parked
    /\ UNCHANGED <<up, left, root, start, pins, seen>>

-----------------------------------------------------------------------------
(* Starting. *)

Shown(m) == IF IsWhole(m) \/ ~Whole THEN Covers(m) ELSE root[m]

(* n gets a root from m, which keeps what it has all of. *)
GetRoot(n, m) ==
    /\ m \in up \ {n}
    /\ IsWhole(m) \/ HasRoot(m)
    /\ LET r == Shown(m)
           kept == IF IsWhole(m) \/ ~Whole THEN pins[m] \cup {r} ELSE pins[m]
       IN /\ root' = [root EXCEPT ![n] = r]
          /\ pins' = [pins EXCEPT ![m] = kept]

Join(n) ==
    /\ n \in up /\ ~HasRoot(n) /\ ~IsWhole(n)
    /\ \E m \in Nodes :
        /\ GetRoot(n, m)
        /\ given' = [given EXCEPT ![n] = IF IsWhole(m) THEN Covers(m) ELSE root[m]]
        /\ lost' = IF IsWhole(m) \/ m \notin lost THEN lost \ {n} ELSE lost \cup {n}
    /\ UNCHANGED <<up, left, start, log, parked, told>>

Begin(n, l, s) ==
    /\ start' = [start EXCEPT ![n][l] = s]
    /\ told' = [told EXCEPT ![n][l] = s]
    /\ log' = [log EXCEPT ![n][l] = @ \cup (parked[n][l] \ s)]
    /\ parked' = [parked EXCEPT ![n][l] = {}]

Load(n) ==
    /\ n \in up /\ IsLoading(n)
    /\ \E l \in Leaves :
        /\ start[n][l] = Open
        /\ \/ Reachable(root[n]) /\ Begin(n, l, root[n][l])
           \/ ~Proof /\ (up \cap Liars) \ {n} # {} /\ \E s \in SUBSET Numbers : Begin(n, l, s)
    /\ pins' = IF \A l \in Leaves : start'[n][l] # Open
               THEN [pins EXCEPT ![n] = @ \cup {root[n]}]
               ELSE pins
    /\ UNCHANGED <<up, left, root, given, lost>>

(* Whoever keeps a root forgets it. *)
Unpin(m) ==
    /\ \E r \in pins[m] :
        /\ \/ ~Pin
           \/ \A n \in up : IsLoading(n) => root[n] # r
           \/ \E o \in Nodes \ {m} : CanGive(o, r)
        /\ pins' = [pins EXCEPT ![m] = @ \ {r}]
    /\ UNCHANGED <<up, left, disk, parked, seen>>

(* Nobody has n's root any more: its open leaves start at another one. *)
StartElsewhere(n) ==
    /\ n \in up /\ IsLoading(n) /\ ~Reachable(root[n])
    /\ \E m \in Nodes : (IsWhole(m) \/ Reachable(root[m])) /\ GetRoot(n, m)
    /\ start' = IF Keep THEN start ELSE [start EXCEPT ![n] = Unknown]
    /\ UNCHANGED <<up, left, log, parked, seen>>

(* Nobody is there who has a frontier, or could load one. *)
StartAlone(n) ==
    /\ Alone
    /\ n \in up /\ ~IsWhole(n)
    /\ \A m \in up : ~IsWhole(m) /\ (HasRoot(m) => ~Reachable(root[m]))
    /\ LET s == [l \in Leaves |-> IF start[n][l] = Open THEN {} ELSE start[n][l]]
       IN /\ start' = [start EXCEPT ![n] = s]
          /\ told' = [told EXCEPT ![n] = s]
          /\ log' = [log EXCEPT ![n] = [l \in Leaves |-> @[l] \cup parked[n][l]]]
    /\ parked' = [parked EXCEPT ![n] = Nothing]
    /\ lost' = lost \cup {n}
    /\ UNCHANGED <<up, left, root, pins, given>>

-----------------------------------------------------------------------------
(* Nodes go, with what was in their memory, and come back. *)

Go(n) ==
    /\ n \in up
    /\ up' = up \ {n}
    /\ parked' = [parked EXCEPT ![n] = Nothing]
    /\ pins' = [pins EXCEPT ![n] = {}]
    /\ root' = IF Durable \/ IsWhole(n) THEN root ELSE [root EXCEPT ![n] = Unknown]
    /\ start' = IF Durable \/ IsWhole(n) THEN start ELSE [start EXCEPT ![n] = Unknown]
    /\ lost' = lost \cup {m \in Nodes : IsLoading(m) /\
                              (m = n \/ \A o \in up' : root[m] \notin pins[o])}
    /\ UNCHANGED <<log, told, given>>

Come(n) ==
    /\ n \notin up
    /\ up' = up \cup {n}
    /\ UNCHANGED <<disk, memory, seen>>

(* What comes back without its disk subscribes anew. *)
Wipe(n) ==
    /\ n \notin up
    /\ root' = [root EXCEPT ![n] = Unknown]
    /\ start' = [start EXCEPT ![n] = Unknown]
    /\ log' = [log EXCEPT ![n] = Nothing]
    /\ told' = [told EXCEPT ![n] = Unknown]
    /\ lost' = lost \ {n}
    /\ up' = up \cup {n}
    /\ UNCHANGED <<memory, given>>

Change ==
    /\ left > 0
    /\ left' = left - 1
    /\ \E n \in Nodes : Go(n) \/ Come(n) \/ Wipe(n)

Init ==
    /\ up = Nodes
    /\ root = [n \in Nodes |-> Unknown]
    /\ start = [n \in Nodes |-> IF n = 0 THEN Nothing ELSE Unknown]
    /\ log = [n \in Nodes |-> Nothing]
    /\ parked = [n \in Nodes |-> Nothing]
    /\ pins = [n \in Nodes |-> {}]
    /\ left = Changes
    /\ told = start
    /\ given = [n \in Nodes |-> Nothing]
    /\ lost = {}

Steps(n) == Join(n) \/ Load(n) \/ StartElsewhere(n) \/ StartAlone(n) \/ Pass(n)
Next ==
    \/ Change
    \/ \E l \in Leaves : Publish(l)
    \/ \E n \in Nodes : Steps(n) \/ Early(n) \/ Unpin(n)
Fair == \A n \in Nodes : WF_vars(Steps(n))
Spec == Init /\ [][Next]_vars /\ Fair

-----------------------------------------------------------------------------
(* What must hold. *)

TypeOK ==
    /\ up \subseteq Nodes /\ lost \subseteq Nodes
    /\ \A n \in Nodes, l \in Leaves :
        /\ start[n][l] = Open \/ start[n][l] \subseteq Numbers
        /\ log[n][l] \subseteq Numbers /\ parked[n][l] \subseteq Numbers
        /\ parked[n][l] # {} => start[n][l] = Open

(* Nothing that a subscription's start covers is delivered, nor anything before it is told. *)
NothingOldIsNew == \A n \in Nodes, l \in Leaves :
    log[n][l] # {} => told[n][l] # Open /\ log[n][l] \cap told[n][l] = {}

(* The start is the giver's frontier at the time of joining, unless the root was lost. *)
StartHolds == \A n \in Nodes \ lost, l \in Leaves :
    n # 0 /\ told[n][l] # Open => told[n][l] = given[n][l]

(* What is due is decided once in the life of a subscription. *)
DecidedOnce == [][\A n \in Nodes, l \in Leaves :
    told[n][l] # Open => told'[n][l] \in {told[n][l], Open}]_vars

(* Every start is complete in the end. *)
StartsEnd == <>[](\A n \in up : IsWhole(n))

(* Everything that is due to a member, and that any other has, is delivered to it. *)
NothingDueSkipped == <>[](\A n, m \in up, l \in Leaves : log[m][l] \subseteq told[n][l] \cup log[n][l])
=============================================================================
