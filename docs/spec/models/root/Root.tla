-------------------------------- MODULE Root --------------------------------
(***************************************************************************)
(* Who acts as root of a topic's dissemination tree (docs/spec/reach.md).  *)
(*                                                                         *)
(* A node is a number: its distance to the author's key; 0 is the author.  *)
(* `conn` holds the open connections. They come and go, and so does the    *)
(* reach of a node; the number of such changes is bounded, so connections  *)
(* are stable from some time on. A node that is gone has no connections.   *)
(*                                                                         *)
(* A join is a question, an answer on its way, and a place taken: a place  *)
(* may change between any two of them. A refusal and a referral arrive at  *)
(* once. A node hears its parent's path at some time after it changed.     *)
(* A node that waits for an answer may give up, and need not.              *)
(*                                                                         *)
(* Each part of the rule can be switched off.                              *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    N,         \* Nodes are 0..N-1.
    Links,     \* Pairs of nodes that can be connected.
    Connected, \* Initial connections: a set of sets of pairs; {} stands for any.
    Public,    \* Initial public nodes: a set of sets; {} stands for any.
    Changes,   \* Changes of connections and reach.
    Fanout,    \* Children of a node before it hands joiners down.
    Helpers,   \* Nodes that are members only while they keep the tree (keepers).
    Ranks,     \* Public nodes rank before others; else distance alone counts.
    AskAll,    \* A node asks every connected member; else only better ranked ones.
    Compare,   \* A node attaches only below a root that ranks better than itself.
    Yield,     \* A node without a place makes only worse ranked joiners wait.
    Move,      \* A member moves to a better root; else only an acting root does.
    Recheck,   \* A node leaves a root that no longer ranks better than itself.
    Overfill,  \* A full parent takes in a joiner that it can hand down to nobody.
    Stay       \* A keeper stays while it has children; else only while it is the root.

ASSUME N \in Nat /\ Fanout \in Nat \ {0} /\ Changes \in Nat

Nodes == 0 .. N - 1
None == N
Pairs == {p \in SUBSET Nodes : Cardinality(p) = 2}

VARIABLES
    conn,      \* Open connections.
    public,    \* Nodes that peers can dial.
    left,      \* Changes left.
    member,    \* Nodes that follow the topic.
    acting,    \* Nodes that act as root.
    parent,    \* Each node's parent, or None.
    path,      \* Each node's path as it heard of it: parent first, root last.
    rootRank,  \* The rank of that root, as the root said it.
    ask,       \* The peer that a node asks for a place, or None.
    answer,    \* The acceptance on its way to a node: <<path, rank>>, or <<>>.
    tried      \* Peers that a node asked in vain in this search.

world == <<conn, public, left>>
place == <<member, acting, parent, path, rootRank>>
search == <<ask, answer, tried>>
vars == <<world, place, search>>

Range(s) == {s[i] : i \in DOMAIN s}
Near(n) == {m \in Nodes : {n, m} \in conn /\ m # n}
Rank(n) == IF Ranks /\ n \notin public THEN N + n ELSE n
Children(n) == {c \in Nodes : parent[c] = n}
HasPlace(n) == n \in acting \/ parent[n] # None
MayKeep(n, m) == m \notin member /\ Rank(m) < Rank(n) /\ (Ranks => m \in public)

(* What a node shows of its place: its path, itself first, and the root's rank. *)
Shown(n) == IF n \in acting THEN <<<<n>>, Rank(n)>> ELSE <<<<n>> \o path[n], rootRank[n]>>

-----------------------------------------------------------------------------
(* Searching. *)

(* The rank that another root must beat. *)
Bar(n) == IF parent[n] # None THEN rootRank[n] ELSE Rank(n)

MayAsk(n, m) == MayKeep(n, m) \/ (m \in member /\ (AskAll \/ Rank(m) < Rank(n)))

(* A lookout asks where it would help; that it asks in vain elsewhere is left out. *)
Useful(n, m) ==
    \/ n \in acting /\ MayKeep(n, m)
    \/ /\ HasPlace(m)
       /\ n \notin Range(path[m])
       /\ Shown(m)[2] < Bar(n)
       /\ parent[n] # m
       /\ parent[n] # None => Move

Wanted(n) == {m \in Near(n) : MayAsk(n, m) /\ (HasPlace(n) => Useful(n, m))}

IsTop(n) == Rank(n) = 0

Ask(n) ==
    /\ n \in member
    /\ ask[n] = None
    /\ ~IsTop(n)
    /\ \E m \in Wanted(n) \ tried[n] : ask' = [ask EXCEPT ![n] = m]
    /\ UNCHANGED <<world, place, answer, tried>>

(* An orphan that asked in vain acts as root. The next lookout of a placed node begins anew. *)
Settle(n) ==
    /\ n \in member
    /\ ask[n] = None
    /\ IsTop(n) \/ Wanted(n) \subseteq tried[n]
    /\ IF HasPlace(n)
       THEN /\ tried[n] # {}
            /\ UNCHANGED acting
       ELSE acting' = acting \cup {n}
    /\ tried' = [tried EXCEPT ![n] = {}]
    /\ UNCHANGED <<world, member, parent, path, rootRank, ask, answer>>

InVain(n) ==
    /\ tried' = [tried EXCEPT ![n] = @ \cup {ask[n]}]
    /\ ask' = [ask EXCEPT ![n] = None]
    /\ answer' = [answer EXCEPT ![n] = <<>>]
    /\ UNCHANGED <<world, place>>

(* Children to which a full parent may hand a joiner down. *)
Dialable(n, m) == {c \in Children(m) \ {n} : {n, c} \in conn \/ (c \in public /\ {n, c} \in Links)}

HandDown(n, c) ==
    IF {n, c} \in Links
    THEN /\ conn' = conn \cup {{n, c}}
         /\ ask' = [ask EXCEPT ![n] = c]
         /\ UNCHANGED <<public, left, place, answer, tried>>
    ELSE /\ tried' = [tried EXCEPT ![n] = @ \cup {c}]
         /\ ask' = [ask EXCEPT ![n] = None]
         /\ UNCHANGED <<world, place, answer>>

(* The peer that n asks answers, or lets n wait. *)
Answer(n) ==
    /\ ask[n] # None
    /\ answer[n] = <<>>
    /\ LET m == ask[n]
           full == n \notin Children(m) /\ Cardinality(Children(m) \ {n}) >= Fanout
           named == IF Overfill THEN Dialable(n, m) ELSE Children(m)
           failed == tried[n] \cap Children(m) # {}
       IN IF m \notin member
          THEN /\ member' = member \cup {m}
               /\ UNCHANGED <<world, acting, parent, path, rootRank, search>>
          ELSE IF ~HasPlace(m)
          THEN /\ Rank(n) < Rank(m) /\ (Yield \/ ask[m] = n)
               /\ InVain(n)
          ELSE IF n \in Range(path[m])
          THEN InVain(n)
          ELSE IF full /\ named # {} /\ ~(Overfill /\ failed)
          THEN \E c \in named : IF c \in tried[n] THEN InVain(n) ELSE HandDown(n, c)
          ELSE /\ answer' = [answer EXCEPT ![n] = Shown(m)]
               /\ UNCHANGED <<world, place, ask, tried>>

(* Waiting may take too long. A keeper stays longer than that, and a lookout finds it. *)
GiveUp(n) ==
    /\ ask[n] \in Nodes \ Helpers
    /\ answer[n] = <<>>
    /\ ~HasPlace(ask[n])
    /\ InVain(n)

Take(n) ==
    /\ answer[n] # <<>>
    /\ IF n \in Range(answer[n][1]) \/ (Compare /\ answer[n][2] >= Bar(n))
       THEN InVain(n)
       ELSE /\ parent' = [parent EXCEPT ![n] = ask[n]]
            /\ path' = [path EXCEPT ![n] = answer[n][1]]
            /\ rootRank' = [rootRank EXCEPT ![n] = answer[n][2]]
            /\ acting' = acting \ {n}
            /\ ask' = [ask EXCEPT ![n] = None]
            /\ answer' = [answer EXCEPT ![n] = <<>>]
            /\ tried' = [tried EXCEPT ![n] = {}]
            /\ UNCHANGED <<world, member>>

-----------------------------------------------------------------------------
(* Keeping a place. *)

Leave(n) ==
    /\ tried' = [tried EXCEPT ![n] = {parent[n]}]
    /\ parent' = [parent EXCEPT ![n] = None]
    /\ path' = [path EXCEPT ![n] = <<>>]
    /\ rootRank' = [rootRank EXCEPT ![n] = 0]
    /\ UNCHANGED <<world, member, acting, ask, answer>>

(* The parent's place changed, or the node's own rank. An orphan tells no path. *)
Hear(n) ==
    /\ parent[n] # None
    /\ LET m == parent[n]
           shown == IF HasPlace(m) THEN Shown(m) ELSE <<path[n], rootRank[n]>>
       IN IF n \in Range(shown[1]) \/ (Recheck /\ shown[2] >= Rank(n))
          THEN Leave(n)
          ELSE /\ shown # <<path[n], rootRank[n]>>
               /\ path' = [path EXCEPT ![n] = shown[1]]
               /\ rootRank' = [rootRank EXCEPT ![n] = shown[2]]
               /\ UNCHANGED <<world, member, acting, parent, search>>

(* A keeper leaves the topic, and its children. *)
Stop(n) ==
    /\ n \in Helpers \cap member
    /\ HasPlace(n) /\ answer[n] = <<>>
    /\ \A m \in Nodes : ask[m] # n
    /\ Children(n) = {} \/ (~Stay /\ n \notin acting)
    /\ LET gone(m) == m = n \/ parent[m] = n
       IN /\ member' = member \ {n}
          /\ acting' = acting \ {n}
          /\ parent' = [m \in Nodes |-> IF gone(m) THEN None ELSE parent[m]]
          /\ path' = [m \in Nodes |-> IF gone(m) THEN <<>> ELSE path[m]]
          /\ rootRank' = [m \in Nodes |-> IF gone(m) THEN 0 ELSE rootRank[m]]
          /\ ask' = [ask EXCEPT ![n] = None]
          /\ tried' = [m \in Nodes |-> IF gone(m) THEN {} ELSE tried[m]]
          /\ UNCHANGED <<world, answer>>

-----------------------------------------------------------------------------
(* The world. *)

(* The connections are now c: whoever lost its parent is an orphan. *)
Connect(c) ==
    LET lost(n) == parent[n] # None /\ {n, parent[n]} \notin c
        cut(n) == ask[n] # None /\ {n, ask[n]} \notin c
    IN /\ conn' = c
       /\ parent' = [n \in Nodes |-> IF lost(n) THEN None ELSE parent[n]]
       /\ path' = [n \in Nodes |-> IF lost(n) THEN <<>> ELSE path[n]]
       /\ rootRank' = [n \in Nodes |-> IF lost(n) THEN 0 ELSE rootRank[n]]
       /\ ask' = [n \in Nodes |-> IF cut(n) THEN None ELSE ask[n]]
       /\ answer' = [n \in Nodes |-> IF cut(n) THEN <<>> ELSE answer[n]]
       /\ tried' = [n \in Nodes |->
                       IF lost(n) THEN {} ELSE {m \in tried[n] : {n, m} \in c}]
       /\ UNCHANGED <<public, member, acting>>

Of(n) == {l \in Links : n \in l}

Change ==
    /\ left > 0
    /\ left' = left - 1
    /\ \/ \E l \in conn : Connect(conn \ {l})
       \/ \E l \in Links \ conn : Connect(conn \cup {l})
       \/ \E n \in Nodes : Of(n) \cap conn # {} /\ Connect(conn \ Of(n))
       \/ \E n \in Nodes : Of(n) \cap conn = {} /\ Connect(conn \cup Of(n))
       \/ \E n \in Nodes :
            /\ public' = IF n \in public THEN public \ {n} ELSE public \cup {n}
            /\ UNCHANGED <<conn, place, search>>

Init ==
    /\ conn \in IF Connected = {} THEN SUBSET Links ELSE Connected
    /\ public \in IF Public = {} THEN SUBSET Nodes ELSE Public
    /\ left = Changes
    /\ member = Nodes \ Helpers
    /\ acting = {}
    /\ parent = [n \in Nodes |-> None]
    /\ path = [n \in Nodes |-> <<>>]
    /\ rootRank = [n \in Nodes |-> 0]
    /\ ask = [n \in Nodes |-> None]
    /\ answer = [n \in Nodes |-> <<>>]
    /\ tried = [n \in Nodes |-> {}]

Search(n) == Ask(n) \/ Answer(n) \/ Take(n) \/ Settle(n)
Next == Change \/ \E n \in Nodes : Search(n) \/ Hear(n) \/ GiveUp(n) \/ Stop(n)
Fair == \A n \in Nodes : WF_vars(Search(n)) /\ WF_vars(Hear(n)) /\ WF_vars(Stop(n))
Spec == Init /\ [][Next]_vars /\ Fair

-----------------------------------------------------------------------------
(* What must hold. *)

(* The end of a node's way up, or None if the way is a cycle or ends at an orphan. *)
RECURSIVE Way(_, _)
Way(n, k) ==
    IF n \in acting THEN n
    ELSE IF parent[n] = None \/ k = 0 THEN None
    ELSE Way(parent[n], k - 1)
Top(n) == Way(n, N)

RECURSIVE Reached(_)
Reached(s) == LET t == s \cup UNION {Near(n) \cap member : n \in s} IN IF t = s THEN s ELSE Reached(t)
Best(s) == CHOOSE n \in s : \A m \in s : Rank(n) <= Rank(m)

TypeOK ==
    /\ conn \subseteq Links /\ Links \subseteq Pairs /\ public \subseteq Nodes
    /\ acting \subseteq Nodes
    /\ \A n \in Nodes :
        /\ parent[n] # None => parent[n] \in Near(n) /\ path[n] # <<>> /\ path[n][1] = parent[n]
        /\ parent[n] = None => path[n] = <<>>
        /\ ask[n] # None => ask[n] \in Near(n)
        /\ answer[n] # <<>> => ask[n] # None
        /\ tried[n] \subseteq Nodes
        /\ n \notin member => ~HasPlace(n) /\ ask[n] = None

(* A root has no parent, and no node takes itself to be above itself. *)
Places == \A n \in Nodes : (n \in acting => parent[n] = None) /\ n \notin Range(path[n])

(* No cycle lasts. *)
RECURSIVE Above(_, _)
Above(n, k) ==
    IF k = 0 \/ parent[n] = None THEN {} ELSE {parent[n]} \cup Above(parent[n], k - 1)
CyclesBreak == <>[](\A n \in Nodes : n \notin Above(n, N))

(* Nodes without a place do not wait for each other for ever. *)
OrphansSettle == <>[](\A n \in member : HasPlace(n))

(* No member starves beside a connected member: both are in one tree. *)
NobodyStarves == <>[](\A l \in conn : \A n, m \in l \cap member : Top(n) # None /\ Top(n) = Top(m))

(* No private node acts as root beside a connected public node. *)
PublicRoots == <>[](\A n \in acting \ public : Near(n) \cap public = {})

(* A public author is the root of all members that it is connected with, over others or not. *)
AuthorIsRoot == <>[](0 \in public => \A n \in Reached({0}) : Top(n) = 0)

(* All connected members are in one tree, below the best of them, and know their path. *)
OneTree == <>[](\A n \in member :
    /\ Top(n) = Best(Reached({n}))
    /\ parent[n] # None => <<path[n], rootRank[n]>> = Shown(parent[n]))
=============================================================================
