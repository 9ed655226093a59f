//! Functions that a component exports, found under the names of the version that it was built against.

use wasmtime::Store;
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, Func, Instance, InstancePre, Lift, Lower, TypedFunc,
};

use super::bindings::{v0_1, v0_3};
use crate::Fault;
use crate::call::GuestResult;
use crate::kind::{ContractVersion, PACKAGE};
use crate::state::StoreData;

/// A component before it is instantiated, with the functions of one of its kinds.
pub(crate) struct KindFunctions {
    pre: InstancePre<StoreData>,
    contract: ContractVersion,
    functions: Vec<(&'static str, ComponentExportIndex)>,
}

impl KindFunctions {
    /// Find the functions of `interface`, and `lifecycle.prepare`. Those with the name of another interface before
    /// them, such as `reasoning#describe`, need not be there. Types are checked when an instance is made.
    pub(crate) fn new(
        pre: InstancePre<StoreData>,
        contract: ContractVersion,
        interface: &str,
        names: &[&'static str],
    ) -> wasmtime::Result<Self> {
        let mut functions = Vec::with_capacity(names.len() + 1);
        let all = [("lifecycle", &["prepare"][..]), (interface, names)];
        for (interface, names) in all {
            let interface = format!("{PACKAGE}/{interface}@{}.0", contract.minor());
            let missing = |what: &str| wasmtime::Error::msg(format!("it does not export {what}"));
            let component = pre.component();
            let instance = component.get_export_index(None, &interface);
            let instance = instance.ok_or_else(|| missing(&format!("`{interface}`")))?;
            for name in names {
                if let Some((other, function)) = name.split_once('#') {
                    let other = format!("{PACKAGE}/{other}@{}.0", contract.minor());
                    let other = component.get_export_index(None, &other);
                    let index =
                        other.and_then(|other| component.get_export_index(Some(&other), function));
                    functions.extend(index.map(|index| (*name, index)));
                    continue;
                }
                let index = component.get_export_index(Some(&instance), name);
                let index = index.ok_or_else(|| missing(&format!("`{interface}#{name}`")))?;
                functions.push((*name, index));
            }
        }
        Ok(Self {
            pre,
            contract,
            functions,
        })
    }

    /// An instance, whose functions are to be taken out.
    pub(crate) async fn instantiate<'a>(
        &'a self,
        store: &'a mut Store<StoreData>,
    ) -> wasmtime::Result<Functions<'a>> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        store.data_mut().instance = Some(instance);
        Ok(Functions {
            found: self,
            instance,
            store,
        })
    }
}

/// The functions of an instance.
pub(crate) struct Functions<'a> {
    found: &'a KindFunctions,
    instance: Instance,
    store: &'a mut Store<StoreData>,
}

impl Functions<'_> {
    /// The version of the component.
    pub(crate) fn contract(&self) -> ContractVersion {
        self.found.contract
    }

    fn function(&mut self, name: &str) -> wasmtime::Result<Func> {
        let mut known = self.found.functions.iter();
        let index = known.find(|(known, _)| *known == name);
        let function = index.and_then(|(_, index)| self.instance.get_func(&mut *self.store, index));
        function.ok_or_else(|| wasmtime::Error::msg(format!("`{name}` is no function")))
    }

    /// A function of these types.
    pub(crate) fn typed<P, R>(&mut self, name: &str) -> wasmtime::Result<TypedFunc<P, R>>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let typed = self.function(name)?.typed(&*self.store);
        typed.map_err(|error| error.context(format!("the function `{name}`")))
    }

    /// A function of these types that components need not have.
    pub(crate) fn optional<P, R>(&mut self, name: &str) -> wasmtime::Result<Option<TypedFunc<P, R>>>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let mut known = self.found.functions.iter();
        match known.any(|(known, _)| *known == name) {
            true => self.typed(name).map(Some),
            false => Ok(None),
        }
    }

    /// A function that answers or gives a fault.
    pub(crate) fn fallible<P, T>(&mut self, name: &str) -> wasmtime::Result<Fallible<P, T>>
    where
        P: ComponentNamedList + Lower,
        T: Lift + Send + Sync + 'static,
    {
        Ok(match self.contract() {
            ContractVersion::V0_1 => Fallible::V0_1(self.typed(name)?),
            ContractVersion::V0_2 | ContractVersion::V0_3 => Fallible::Since0_2(self.typed(name)?),
        })
    }
}

/// A function that answers or gives a fault, of which version 0.1 knew fewer.
pub(crate) enum Fallible<P, T> {
    V0_1(TypedFunc<P, (Result<T, v0_1::mortise::plugin::types::Fault>,)>),
    Since0_2(TypedFunc<P, (Result<T, v0_3::mortise::plugin::types::Fault>,)>),
}

impl<P, T> Fallible<P, T>
where
    P: ComponentNamedList + Lower + Send + Sync,
    T: Lift + Send + Sync + 'static,
{
    /// Call it; the outer error is a trap.
    pub(crate) async fn call(&self, store: &mut Store<StoreData>, params: P) -> GuestResult<T> {
        Ok(match self {
            Self::V0_1(function) => {
                let (said,) = function.call_async(store, params).await?;
                said.map_err(Fault::from)
            }
            Self::Since0_2(function) => {
                let (said,) = function.call_async(store, params).await?;
                said.map_err(Fault::from)
            }
        })
    }
}

impl From<v0_1::mortise::plugin::types::Fault> for Fault {
    fn from(fault: v0_1::mortise::plugin::types::Fault) -> Self {
        use v0_1::mortise::plugin::types::Fault as Old;
        match fault {
            Old::Invalid(text) => Fault::Invalid(text),
            Old::Unsupported(text) => Fault::Unsupported(text),
            Old::Internal(text) => Fault::Internal(text),
        }
    }
}

impl From<v0_3::mortise::plugin::types::Fault> for Fault {
    fn from(fault: v0_3::mortise::plugin::types::Fault) -> Self {
        use v0_3::mortise::plugin::types::Fault as Present;
        match fault {
            Present::Invalid(text) => Fault::Invalid(text),
            Present::TooComplex(text) => Fault::TooComplex(text),
            Present::Unsupported(text) => Fault::Unsupported(text),
            Present::Internal(text) => Fault::Internal(text),
        }
    }
}
